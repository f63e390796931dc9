-- Receipts.  KEYS[1] is the prefix of the app's keys.  ARGV: the verb, the job, the fire's key, the owner, the caller's memory
-- of the clock (epoch, mono, least, most), and the arguments of the verb.  base.py and clock.py beside this file have the rules.
--
-- Below KEYS[1], by job and key: `leases` (their ends), `owners`, `held` (leases that were extended once), `answers` and
-- `forget` (when).  By job: `fences` and `fenced` (when the newest was seen).  All instants are readings of `mono`.

local STEP_S, DRIFT, GAP_MAX_S, PRUNE_MAX = 1, 1 / 1000, 86400, 100
local SHARE = 3 -- renewals per lease
local verb, job, owner = ARGV[1], ARGV[2], ARGV[4]
local receipt = job .. ":" .. ARGV[3]

local function name(part)
  return KEYS[1] .. ":" .. part
end

local function exact(number)
  return string.format("%.6f", number)
end

-- Extends the leases that were live at `seen`; with `once`, only those that were not extended since their last renewal.
local function hold(seen, by_s, once)
  for _, one in ipairs(redis.call("ZRANGEBYSCORE", name("leases"), "(" .. exact(seen), "+inf")) do
    if not once or redis.call("SADD", name("held"), one) == 1 then
      redis.call("ZINCRBY", name("leases"), exact(by_s), one)
    end
  end
end

local function arrive()
  local time = redis.call("TIME")
  local wall = time[1] + time[2] / 1000000
  local known = redis.call("HMGET", name("clock"), "epoch", "steps", "seen")
  local epoch, steps, seen = known[1] or owner, tonumber(known[2] or 0), tonumber(known[3] or wall)
  local moved = wall - steps
  local mono = moved
  if epoch == ARGV[5] then
    local low, high = ARGV[6] + ARGV[7], ARGV[6] + ARGV[8]
    local slack = STEP_S + ARGV[8] * DRIFT
    if moved < math.max(seen, low) - slack then
      mono = math.max(seen, low)
      hold(seen, mono - math.max(seen, moved), false)
    elseif moved > high + slack then
      mono = math.max(seen, high)
    end
  elseif moved < seen - STEP_S then
    mono = seen
  elseif verb == "begin" and moved > seen + STEP_S + ARGV[11] / SHARE then
    mono = math.min(moved, seen + GAP_MAX_S)
    hold(seen, mono - seen, true)
  end
  redis.call("HSET", name("clock"), "epoch", epoch, "steps", exact(wall - mono), "seen", exact(math.max(seen, mono)))
  return mono, { epoch, exact(mono) }
end

local mono, reading = arrive()

local function answer(kind, value)
  reading[3], reading[4] = kind, value
  return reading
end

local function drop_lease(one)
  redis.call("ZREM", name("leases"), one)
  redis.call("HDEL", name("owners"), one)
  redis.call("SREM", name("held"), one)
end

local function set_lease(lease_s)
  redis.call("ZADD", name("leases"), exact(mono + lease_s), receipt)
  redis.call("SREM", name("held"), receipt)
end

local function oldest(part, before)
  return redis.call("ZRANGEBYSCORE", name(part), "-inf", exact(before), "LIMIT", 0, PRUNE_MAX)
end

local function prune(keep_s)
  for _, one in ipairs(oldest("leases", mono - keep_s)) do
    drop_lease(one)
  end
  for _, one in ipairs(oldest("forget", mono)) do
    redis.call("ZREM", name("forget"), one)
    redis.call("HDEL", name("answers"), one)
  end
  for _, one in ipairs(oldest("fenced", mono - keep_s)) do
    redis.call("ZREM", name("fenced"), one)
    redis.call("HDEL", name("fences"), one)
  end
end

-- Fences are below 2^53, so a Lua number holds them exactly.
local function see_fence(fence)
  local newest = tonumber(redis.call("HGET", name("fences"), job) or "-1")
  redis.call("ZADD", name("fenced"), exact(mono), job)
  if tonumber(fence) > newest then
    redis.call("HSET", name("fences"), job, fence)
    return tonumber(fence)
  end
  return newest
end

if verb == "begin" then
  prune(ARGV[12])
  local newest = see_fence(ARGV[9])
  local kept = redis.call("HGET", name("answers"), receipt)
  if kept then return answer("handled", kept) end
  if ARGV[10] ~= "" and tonumber(ARGV[9]) < newest then return answer("stale", string.format("%.0f", newest)) end
  local left_s = (redis.call("ZSCORE", name("leases"), receipt) or mono) - mono
  if left_s > 0 then return answer("running", exact(left_s)) end
  redis.call("HSET", name("owners"), receipt, owner)
  set_lease(ARGV[11])
  return answer("ours", "")
end

if redis.call("HGET", name("owners"), receipt) == owner then
  if verb == "renew" then
    set_lease(ARGV[9])
  else
    drop_lease(receipt)
  end
  if verb == "finish" then
    redis.call("HSET", name("answers"), receipt, ARGV[9])
    redis.call("ZADD", name("forget"), exact(mono + ARGV[10]), receipt)
  end
end
return answer("", "")
