-- What a node is told of its claims, and of when to ask again.

-- How long until the first of an index that comes after this.
local function least(index, after)
  local first = redis.call("ZRANGEBYSCORE", index, "(" .. exact(after), "+inf", "WITHSCORES", "LIMIT", 0, 1)
  return first[2] and tonumber(first[2]) - after or math.huge
end

-- For each claim its fire's text, fence and attempt, and the rest as JSON, which is the same for most.
local function told_of(granted)
  local told, keys, jobs, places, rests = {}, {}, {}, {}, {}
  for place = 1, #granted do
    local fire = granted[place]
    keys[place] = fire.key
    if not places[fire.job] then
      jobs[#jobs + 1] = fire.job
      places[fire.job] = #jobs
    end
  end
  local texts, successes = fields("texts", keys), fields("succeeded", jobs)
  for place = 1, #granted do
    local fire = granted[place]
    local known_as = not fire.sentence and fire.job .. " " .. exact(fire.ttl)
    local rest = rests[known_as]
    if not rest then
      local success = successes[places[fire.job]]
      rest = '{"ttl_s":"' .. exact(fire.ttl) .. (success and '","success":"' .. success or "")
      rest = rest .. (fire.sentence and '","sentence":' .. cjson.encode(fire.sentence) or '"') .. "}"
      if known_as then
        rests[known_as] = rest
      end
    end
    local at = 4 * place
    told[at - 3], told[at - 2], told[at - 1], told[at] = texts[place], fire.fence, fire.attempt, rest
  end
  return told
end
