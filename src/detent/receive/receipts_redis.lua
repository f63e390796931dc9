-- Receipts: KEYS[1] names the app's place; ARGV is the verb, the job, the fire's key, the owner, and more.
-- The rules are those of receipts.py.  A receipt is a hash: `owner` while it runs, `answer` when it is handled.

local verb, job, owner = ARGV[1], ARGV[2], ARGV[4]
local receipt = KEYS[1] .. ":" .. job .. ":" .. ARGV[3]

local function is_ours()
  return redis.call("HGET", receipt, "owner") == owner and redis.call("HEXISTS", receipt, "answer") == 0
end

-- Fences are below 2^53, so that a number of Lua holds them.
local function see_fence(fence)
  local fences = KEYS[1] .. ":fences"
  local newest = tonumber(redis.call("HGET", fences, job) or "-1")
  if tonumber(fence) > newest then
    redis.call("HSET", fences, job, fence)
    return tonumber(fence)
  end
  return newest
end

if verb == "begin" then
  local newest = see_fence(ARGV[5])
  local answer = redis.call("HGET", receipt, "answer")
  if answer then return { "handled", answer } end
  if ARGV[6] ~= "" and tonumber(ARGV[5]) < newest then return { "stale", string.format("%.0f", newest) } end
  local left = redis.call("PTTL", receipt)
  if left > 0 then return { "running", tostring(left) } end
  redis.call("DEL", receipt)
  redis.call("HSET", receipt, "owner", owner)
  redis.call("PEXPIRE", receipt, ARGV[7])
  return { "ours", "" }
end

if is_ours() then
  if verb == "renew" then redis.call("PEXPIRE", receipt, ARGV[5]) end
  if verb == "release" then redis.call("DEL", receipt) end
  if verb == "finish" then
    redis.call("HSET", receipt, "answer", ARGV[5])
    redis.call("PEXPIRE", receipt, ARGV[6])
  end
end
return {}
