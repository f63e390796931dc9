-- The reply to an ask: its claims, and when to ask again.

-- How long until the first of an index that comes after this.
local function least(index, after)
  local first = redis.call("ZRANGEBYSCORE", index, "(" .. exact(after), "+inf", "WITHSCORES", "LIMIT", 0, 1)
  return first[2] and tonumber(first[2]) - after or math.huge
end

-- For each claim its fire's text, fence and attempt, and the rest as JSON, which is the same for most.
local function grant_words(grants)
  local words, jobs, ttls, sentences = { nil, nil, nil, nil }, grants.jobs, grants.ttls, grants.sentences
  local texts, successes = fields("texts", grants.keys), fields("succeeded", jobs)
  local rest, last_job, last_ttl
  for place = 1, grants.count do
    local job, ttl, sentence = jobs[place], ttls[place], sentences[place]
    if sentence or job ~= last_job or ttl ~= last_ttl then
      rest = successes[place] and '","success":"' .. successes[place] or ""
      rest = '{"ttl_s":"' .. exact(ttl) .. rest .. (sentence and '","sentence":' .. cjson.encode(sentence) or '"') .. "}"
      last_job, last_ttl = not sentence and job, ttl
    end
    local at = 4 * place
    words[at - 3], words[at - 2], words[at - 1], words[at] =
      texts[place], grants.fences[place], grants.attempts[place], rest
  end
  return words
end

-- These fires were granted, too.
local function add_grants(grants, fires_granted)
  for place = 1, #fires_granted do
    local fire, of = fires_granted[place], grants.count + 1
    grants.count, grants.keys[of], grants.jobs[of], grants.ttls[of] = of, fire.key, fire.job, fire.ttl
    grants.fences[of], grants.attempts[of], grants.sentences[of] = fire.fence, fire.attempt, fire.sentence
  end
  return grants
end
