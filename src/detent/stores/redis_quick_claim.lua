-- Claims of messages that only room keeps waiting, in queues that have nothing else: most are such.  The rules are
-- those of `grant`; here a message goes from what is kept of it to what is kept next, without a table of its own.

-- What is told of each claim: `told_of`.
local function new_grants()
  return { keys = {}, jobs = {}, ttls = {}, fences = {}, attempts = {}, sentences = {}, count = 0 }
end

-- Grant these, in order, up to one that is not due, or that needs the rules in full.  Answers how many, and whether
-- it stopped at one of the latter.
local function take(round, keys, kept, box)
  local grants, ask, node, number = round.grants, round.ask, round.ask.node, round.ask.number
  local fence, packs, moved, count, first = world.fence or leap(0), {}, {}, 0, grants.count
  local is_stuck, last_ttl, expires, score = false, nil, nil, nil
  for place = 1, #keys do
    local state, queue, job, due, run_at, attempt, claim_s, _, _, _, _, _, _, _, _, over_at, outcome, attempts,
      unique_s, rare
    if kept[place] then
      state, queue, job, due, run_at, attempt, claim_s, _, _, _, _, _, _, _, _, over_at, outcome, attempts,
        unique_s, rare = cmsgpack.unpack(kept[place])
    end
    if state ~= "pending" or rare then
      is_stuck = true
      break
    elseif run_at > wall then
      round.comes[box.ready] = run_at
      break
    end
    local ttl = ask.ttl_s or claim_s
    if ttl ~= last_ttl then
      last_ttl, expires = ttl, mono + ttl
      score, world.longest = exact(expires), math.max(world.longest, ttl)
      round.soonest = math.min(round.soonest, expires - mono)
    end
    count, fence, attempt = count + 1, fence + 1, attempt + 1
    local at, of = 2 * count, first + count
    packs[at - 1], packs[at] = keys[place], cmsgpack.pack(
      "claimed", queue, job, due, run_at, attempt, claim_s, node, number, fence, ttl, expires, node, fence, wall,
      over_at, outcome, attempts, unique_s, nil
    )
    moved[at - 1], moved[at] = score, keys[place]
    grants.keys[of], grants.jobs[of], grants.ttls[of] = keys[place], job, ttl
    grants.fences[of], grants.attempts[of] = fence, attempt
  end
  if count > 0 then
    world.fence, grants.count = fence, first + count
    call_with("HSET", KEPT, packs)
    call_with("ZADD", box.taken, moved)
    redis.call("ZREM", box.ready, unpack(keys, 1, count))
  end
  return count, is_stuck
end

-- Answers whether that was all that the queue has for this ask.
local function grant_quickly(round, queue)
  local left, box = round.left, messages.box(queue)
  while left.runs > 0 and round.budget > 0 do
    local most = math.min(left.runs, round.budget, CHUNK)
    local keys = redis.call("ZRANGE", box.ready, 0, most - 1)
    if #keys == 0 then
      round.comes[box.ready] = math.huge
      return true
    end
    local count, is_stuck = take(round, keys, redis.call("HMGET", KEPT, unpack(keys)), box)
    left.runs, round.budget = left.runs - count, round.budget - count
    if is_stuck then
      return false
    elseif count < #keys then
      return true
    elseif #keys < most then
      round.comes[box.ready] = math.huge
      return true
    end
  end
  return left.runs == 0
end
