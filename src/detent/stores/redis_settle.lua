-- What becomes of a claim: it is renewed, its fire is settled, or its node is told to stop.

local function renew(claims)
  local answers, keys = {}, {}
  for place, claimed in ipairs(claims) do
    keys[place] = claimed.key
  end
  fires.fetch(keys)
  for place, claimed in ipairs(claims) do
    local fire = fires.open(claimed.key)
    if fire and fire.fence == claimed.fence and fires.is_live(fire) then
      fires.touch(fire)
      fire.expires, fire.doubted = mono + claimed.ttl_s, nil
      world.longest = math.max(world.longest, claimed.ttl_s)
      answers[place] = fire.stop or false
    else
      answers[place] = "lost no longer ours"
    end
  end
  return answers
end

local function keep_lane(fire)
  if fire.lane and fire.grace_s > 0 and not fire.sentence then
    world.recorded = world.recorded + 1 -- two graces may end at one moment
    local member = string.format("%.0f", world.recorded) .. " " .. fire.lane
    redis.call("ZADD", name("graces"), exact(mono + fire.grace_s), member)
  end
end

-- The attempt that ends with this report: the claim's own, or the one that was lost before it.
local function add_attempt(fire, report)
  fire.attempts = fire.attempts or {}
  fire.attempts[#fire.attempts + 1] = {
    number = fire.attempt,
    node = fire.ran_node,
    fence = fire.ran_fence,
    started = fire.ran_at,
    ended = wall,
    outcome = report.outcome,
    status = report.status,
    took = report.took_s,
  }
  local field, tail = fire.key .. "#" .. #fire.attempts, report.tail and ARGV[report.tail]
  if tail then
    redis.call("HSET", name("tails"), field, tail)
  end
  if report.result then
    redis.call("HSET", name("results"), field, report.result)
  end
end

local function put_follow(report)
  for _, place in ipairs(report.follow) do
    fires.record(ARGV[place], wall)
  end
end

local function settle(fire, report)
  fires.touch(fire)
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
  if is_theirs then
    put_follow(report)
  end
end

-- Does somebody wait for a place that these reports freed, or for what they put?
local function lets_others_in(reports)
  for _, report in ipairs(reports) do
    local fire = fires.get(report.key)
    if #report.follow > 0 then
      return true
    elseif fire and fire.lane then
      if redis.call("ZCOUNT", name("lane", fire.lane), "-inf", exact(wall)) > 0 then
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

local function finish(reports)
  local answers, keys = {}, {}
  for place, report in ipairs(reports) do
    keys[place] = report.key
  end
  fires.fetch(keys)
  for place, report in ipairs(reports) do
    local fire = fires.get(report.key)
    answers[place] = false
    if fire and fire.fence == report.fence then
      if fire.state == "claimed" then
        settle(fire, report)
      end
      answers[place] =
        { outcome = fire.verdict, again_in_s = fire.again and exact(fire.again), counts = not fire.uncounted }
    end
  end
  fires.save()
  if lets_others_in(reports) then
    ring()
  end
  return answers
end

local function cancel(asked)
  local fire = fires.open(asked.key)
  if not fire then
    return false
  end
  fires.touch(fire).stop = "cancelled " .. asked.reason
  if fire.state == "pending" then
    fires.finish(fire, fire.stop)
  end
  ring()
  return true
end

verbs.renew, verbs.finish, verbs.cancel = renew, finish, cancel
