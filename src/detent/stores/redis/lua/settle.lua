-- Renews claims, settles their fires, and cancels fires.

local function renew(claims)
  local answers, keys = {}, {}
  for place, claimed in ipairs(claims) do
    keys[place] = claimed.key
  end
  fires.fetch(keys, "messages")
  for place, claimed in ipairs(claims) do
    local fire = fires.open(claimed.key)
    if fire and fire.fence == claimed.fence and fires.is_live(fire) then
      fires.touch(fire)
      fire.expires, fire.doubted = mono + claimed.ttl_s, nil
      look_before(fire.expires)
      lengthen(claimed.ttl_s)
      answers[place] = fire.stop or false
    else
      answers[place] = "lost no longer ours"
    end
  end
  return answers
end

local function keep_lane(fire)
  if fire.lane and fire.grace_s > 0 and not fire.sentence then
    header.recorded = header.recorded + 1 -- two graces may end at one moment
    local member = string.format("%.0f", header.recorded) .. " " .. fire.lane
    redis.call("ZADD", name("graces"), mono + fire.grace_s, member)
  end
end

-- The attempt that ends with this report: the claim's own, or the one that was lost before it.
local function add_attempt(fire, report)
  local attempts, tail = fire.attempts or {}, report.tail and ARGV[report.tail]
  fire.attempts = attempts
  if fire.is_light then -- packed small, too
    attempts[#attempts + 1] =
      { fire.attempt, fire.ran_node, fire.ran_fence, fire.ran_at, wall, report.outcome, report.rest }
  else
    local rest = cjson.decode(report.rest)
    attempts[#attempts + 1] = {
      number = fire.attempt, node = fire.ran_node, fence = fire.ran_fence, started = fire.ran_at, ended = wall,
      outcome = report.outcome, status = rest.status, took = rest.took_s,
    }
  end
  if tail then
    redis.call("HSET", name("tails"), fire.key .. "#" .. #attempts, tail)
  end
  if report.result then
    redis.call("HSET", name("results"), fire.key .. "#" .. #attempts, report.result)
  end
end

local function put_follow(report)
  for _, place in ipairs(report.follow or {}) do
    the_records().put(ARGV[place], wall)
  end
end

local function settle(fire, report)
  fires.touch(fire)
  if fire.breaker then
    the_gates().leave(fire, report.outcome)
  end
  if report.counts and fire.attempt > #(fire.attempts or {}) then
    add_attempt(fire, report)
    keep_lane(fire)
  end
  if not report.counts and not fire.sentence then
    fire.attempt = fire.attempt - 1
  end
  fire.waits = nil
  if report.counts then
    fire.sentence = nil
  end
  fire.verdict, fire.again, fire.uncounted = report.outcome, report.again_in_s, not report.counts or nil
  if report.again_in_s and not fire.stop then
    fire.state, fire.run_at = "pending", wall + report.again_in_s
    fire.outcome = report.counts and report.outcome or fire.outcome
    return
  end
  local is_theirs = not report.again_in_s
  if not is_theirs then
    fire.verdict, fire.again, fire.uncounted = fire.stop, nil, nil
  end
  fires.finish(fire, fire.verdict)
  if fire.is_light then
    fire.verdict = nil -- its outcome says the same
  end
  if is_theirs then
    put_follow(report)
  end
end

-- Does somebody wait for a place that these reports freed, or for what they put?
local function lets_others_in(reports)
  for _, report in ipairs(reports) do
    local fire = cache[report.key]
    if report.follow and #report.follow > 0 then
      return true
    elseif fire and fire.lane then
      if redis.call("ZCOUNT", name("lane", fire.lane), "-inf", wall) > 0 then
        return true
      end
      for _, one in ipairs(fires.fetch(redis.call("ZRANGE", name("held", fire.lane), 0, -1))) do
        if fires.is_due(one) then
          return true
        end
      end
    end
  end
  return false
end

-- A report is five words: key, fence, outcome, what only history needs, and what most do not have.  Those of these places;
-- nil: all.
local function reports_of(count, places)
  local reports, keys = {}, {}
  for of = 1, places and #places or count do
    local place = places and places[of] or of
    local at = FIRST_TEXT + 5 * (place - 1)
    local report = ARGV[at + 4] == "" and {} or cjson.decode(ARGV[at + 4])
    report.key, report.fence, report.outcome = ARGV[at], tonumber(ARGV[at + 1]), ARGV[at + 2]
    report.rest, report.counts = ARGV[at + 3], report.counts ~= false
    report.place, reports[of], keys[of] = place, report, report.key
  end
  return reports, keys
end

-- 0: it was not ours to settle; 1: as the report says; a text: the verdict that stands.
local function answer_of(fire, report, is_fresh)
  local verdict = fire.verdict or fire.outcome
  if is_fresh and verdict == report.outcome and fire.again == report.again_in_s then
    return 1
  end
  return cjson.encode({
    outcome = verdict, again_in_s = fire.again and exact(fire.again), counts = not fire.uncounted,
  })
end

local function finish(asked)
  local answers, others = {}, nil
  if are_short(asked.count) then
    answers, others = settle_quickly(asked.count)
    if #others == 0 then
      return true, answers
    end
  end
  local reports, keys = reports_of(asked.count, others)
  fires.fetch(keys, "messages")
  for _, report in ipairs(reports) do
    local fire, place = cache[report.key], report.place
    answers[place] = 0
    if fire and fire.fence == report.fence then
      local is_fresh = fire.state == "claimed"
      if is_fresh then
        settle(fire, report)
      end
      answers[place] = answer_of(fire, report, is_fresh)
    end
  end
  fires.save()
  if lets_others_in(reports) then
    wake_nodes()
  end
  return true, answers
end

local function cancel(asked)
  local fire = fires.open(asked.key)
  if not fire then
    return false
  end
  fires.touch(fire).stop = "cancelled " .. asked.reason
  if fire.state == "pending" then
    fires.reach(fire)
    fires.finish(fire, fire.stop)
  end
  wake_nodes()
  return true
end

verbs.renew, verbs.finish, verbs.cancel = renew, finish, cancel
