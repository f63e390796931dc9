-- The usual ask, quickly: some messages that just are to be run.  Where there is more to it than that it
-- answers with nothing, and has changed nothing: `redis_claim.lua` knows all the rules.

local QUICK_MAX = 200 -- Lua passes no more than some thousand values at once

-- Is there anything but messages, or anything that they have to wait for?
local function is_usual(ask, step, moved)
  local packed = redis.call("HGET", name("asks"), ask.node)
  local newest = packed and cmsgpack.unpack(packed).number or 0
  if step ~= 0 or moved > 0 or mono < world.calm_until or ask.number <= newest or ask.dead or ask.without then
    return false
  end
  local others, rates, is_named = {}, {}, {}
  for place, queue in ipairs(ask.queues) do
    if is_named[queue] then
      return false
    end
    is_named[queue] = true
    rates[place] = "rate/" .. string.match(queue, "^[^^]*")
    for _, kind in ipairs({ "pending", "plain", "claimed", "waiting" }) do
      others[#others + 1] = name(kind, queue)
    end
  end
  if #rates == 0 or ask.limit > QUICK_MAX or redis.call("EXISTS", unpack(others)) > 0 then
    return false
  end
  for _, note in ipairs(redis.call("HMGET", name("notes"), unpack(rates))) do
    if note then
      return false
    end
  end
  return true
end

-- Adds what is due in this box to those found.  Answers whether all of it is plain, and when there is more.
local function look(box, left, found)
  local expires = tonumber(redis.call("ZRANGE", box.taken, 0, 0, "WITHSCORES")[2] or math.huge)
  local keys = left > 0 and redis.call("ZRANGE", box.ready, 0, left - 1) or {}
  for place, packed in ipairs(#keys > 0 and redis.call("HMGET", KEPT, unpack(keys)) or keys) do
    local fire = packed and messages.unpack(keys[place], packed)
    if not fire or fire.state ~= "pending" or fire.rare then
      return false
    elseif fire.run_at > wall then
      break
    end
    found[#found + 1] = fire
  end
  return expires > mono, math.min(expires - mono, least(box.ready, wall))
end

local function grant(found, ask)
  local states, readies, takens = {}, {}, {}
  for place = 1, #found do
    local fire = found[place]
    local box = messages.box(fire.queue)
    world.fence = (world.fence or leap(0)) + 1
    fire.state, fire.node, fire.ask, fire.fence = "claimed", ask.node, ask.number, world.fence
    fire.ttl = ask.ttl_s or fire.claim_s
    fire.expires, fire.attempt = mono + fire.ttl, fire.attempt + 1
    fire.ran_node, fire.ran_fence, fire.ran_at = ask.node, world.fence, wall
    world.longest = math.max(world.longest, fire.ttl)
    states[2 * place - 1], states[2 * place] = fire.key, messages.pack(fire)
    add(readies, box.ready, fire.key)
    add(takens, box.taken, exact(fire.expires), fire.key)
  end
  redis.call("HSET", KEPT, unpack(states))
  for index, values in pairs(readies) do
    redis.call("ZREM", index, unpack(values))
  end
  for index, values in pairs(takens) do
    redis.call("ZADD", index, unpack(values))
  end
end

local ask, found = cjson.decode(ARGV[2]), {}
local step, moved = arrive()
if not is_usual(ask, step, moved) then
  return {}
end
local soonest = least(name("graces"), mono)
for place, has_messages in ipairs(redis.call("SMISMEMBER", name("mailboxes"), unpack(ask.queues))) do
  if has_messages == 1 then
    local is_plain, comes_in_s = look(messages.box(ask.queues[place]), ask.limit - #found, found)
    if not is_plain then
      return {}
    end
    soonest = math.min(soonest, comes_in_s)
  end
end
redis.call("HSET", name("asks"), ask.node, cmsgpack.pack({ number = ask.number, at = mono }))
if #found > 0 then
  grant(found, ask)
  for _, fire in ipairs(found) do
    soonest = math.min(soonest, fire.ttl)
  end
end
return reply({ next_in_s = soonest < math.huge and exact(soonest) or nil }, told_of(found))
