-- Who gets what is due.  The answer is that of `stores/memory.py`, with one limit: an ask without end must
-- not keep the server from others.  So once it has all that it can run it passes over the fires that are
-- plain, looks at no more than `LOOK_MAX` others, to settle some, and where there are more than those not
-- at every ask; and before that at `SCAN_MAX` that have to wait.  The next ask goes on from there.

local SENTENCES_MAX, LOOK_MAX, SCAN_MAX = 200, 200, 10000
local CHUNK_MIN, CHUNK_MAX = 2, 128
local LOOK_EVERY_S = 0.1
local LOOK_AGAIN_S = 0.5 -- where there was more to look at

local function before(one, other)
  return one.run_at < other.run_at or one.run_at == other.run_at and one.key < other.key
end

-- The fires of an index that are due, in order, in chunks that grow.
local function due_of(kind, queue, limit)
  local chunk, place, rank, size = {}, 0, 0, math.max(CHUNK_MIN, math.min(limit, CHUNK_MAX))
  local source = { rank = 0, of = kind .. " " .. queue, is_plain = kind == "plain" }
  local function fill()
    local keys = redis.call("ZRANGE", name(kind, queue), rank, rank + size - 1)
    chunk, place, rank, size = fires.fetch(keys), 1, rank + #keys, math.min(size * 2, CHUNK_MAX)
    source.rank = rank - #chunk
    return #chunk > 0
  end
  function source.peek()
    if (place == 0 or place > #chunk) and not fill() then
      return nil
    end
    return chunk[place].run_at <= wall and chunk[place] or nil
  end
  function source.skip()
    place, source.rank = place + 1, source.rank + 1
  end
  function source.leap(to)
    if to > source.rank then
      rank, place, source.rank = to, 0, to
    end
  end
  return source
end

-- The expired claims of the ask's queues, in order.
local function expired_of(queues)
  local gone, place = {}, 1
  for _, queue in ipairs(queues) do
    local keys =
      redis.call("ZRANGEBYSCORE", name("claimed", queue), "-inf", exact(mono), "LIMIT", 0, SCAN_MAX)
    for _, fire in ipairs(fires.fetch(keys)) do
      if fire.state == "claimed" and fire.expires <= mono then
        gone[#gone + 1] = fire
      end
    end
  end
  table.sort(gone, before)
  return {
    peek = function() return gone[place] end,
    skip = function() place = place + 1 end,
  }
end

-- Asks that had to stop early left the ranks where the next goes on: to run more, and to look at others.
local function sources_of(ask)
  local sources, flat, ranks = { expired_of(ask.queues) }, redis.call("HGETALL", name("scans")), {}
  for place = 1, #flat, 2 do
    ranks[flat[place]] = tonumber(flat[place + 1])
  end
  for _, queue in ipairs(ask.queues) do
    for _, kind in ipairs({ "pending", "plain" }) do
      local source = due_of(kind, queue, ask.limit)
      source.run, source.look = ranks["run " .. source.of] or 0, ranks["look " .. source.of] or 0
      source.leap(source.run)
      sources[#sources + 1] = source
    end
  end
  return sources
end

local function remember(sources, kind, is_cut)
  for _, source in ipairs(sources) do
    if source.of and is_cut then
      redis.call("HSET", name("scans"), kind .. " " .. source.of, source.rank)
    elseif source.of and source[kind] > 0 then
      redis.call("HDEL", name("scans"), kind .. " " .. source.of)
    end
  end
end

-- From now on only sentences are wanted.  Answers what is left to look at, and whether some is left out.
local function turn_to_sentences(sources)
  local rest, has_more = {}, false
  remember(sources, "run", false)
  for _, source in ipairs(sources) do
    if not source.is_plain then
      rest[#rest + 1] = source
      has_more = has_more or source.of and source.look > 0
    end
  end
  local looked = tonumber(redis.call("HGET", name("scans"), "looked"))
  if has_more and looked and math.abs(mono - looked) < LOOK_EVERY_S then
    return { sources[1] }, true -- the expired claims are looked at always
  end
  for _, source in ipairs(rest) do
    if source.of then
      source.leap(source.look)
    end
  end
  return rest, false
end

local function grant(fire, ask)
  world.fence = (world.fence or leap(0)) + 1
  fires.touch(fire)
  fire.state, fire.node, fire.ask, fire.fence, fire.doubted = "claimed", ask.node, ask.number, world.fence, nil
  fire.ttl = ask.ttl_s > 0 and ask.ttl_s or fire.claim_s
  fire.expires = mono + fire.ttl
  world.longest = math.max(world.longest, fire.ttl)
  fires.reach(fire)
  if not fire.sentence then
    fire.attempt = fire.attempt + 1
    fire.ran_node, fire.ran_fence, fire.ran_at = ask.node, world.fence, wall
    fires.drop_late_hooks(fire)
  end
  lanes.hold(fire)
end

-- What the judgement says, as far as the ask has room for it.
local function carry_out(fire, ask, left, without)
  local step, sentence, gone = lanes.judge(fire)
  for _, holder in ipairs(gone or {}) do
    fires.touch(holder).stop = "replaced by " .. fire.key
    ring()
  end
  local kind = fire.origin == "hook" and "hooks" or "runs"
  if step == "wait" and not fire.waits then
    fires.touch(fire).waits = true
    lanes.hold(fire)
  elseif step == "sentence" and left.sentences > 0 then
    fires.touch(fire).sentence, left.sentences = sentence, left.sentences - 1
    grant(fire, ask)
  elseif step == "run" and left[kind] > 0 and not without[fire.job] then
    left[kind] = left[kind] - 1
    grant(fire, ask)
  end
end

-- Claim what is due for this ask.  Answers whether there was more to look at.
local function grant_due(ask)
  local left = { runs = ask.limit, hooks = ask.hooks, sentences = SENTENCES_MAX }
  local sources, without, budget, is_full, is_hasty = sources_of(ask), {}, SCAN_MAX, false, false
  for _, job in ipairs(ask.without) do
    without[job] = true
  end
  while budget > 0 do
    if left.runs == 0 and not is_full then
      is_full, budget = true, LOOK_MAX
      sources, is_hasty = turn_to_sentences(sources)
    end
    local fire = fires.first_of(sources, before)
    if not fire then
      break
    end
    budget = budget - 1
    if not fire.is_forgotten then
      carry_out(fire, ask, left, without)
    end
  end
  remember(sources, is_full and "look" or "run", budget == 0)
  if is_full and budget == 0 then
    redis.call("HSET", name("scans"), "looked", exact(mono))
  end
  return is_hasty or budget == 0
end

-- These lives are proven dead: their claims are over now.
local function bury(lives)
  for _, life in ipairs(lives) do
    for _, fire in ipairs(fires.fetch(redis.call("ZRANGE", name("life", life), 0, -1))) do
      if fires.is_live(fire) then
        fires.touch(fire).expires = mono
        ring()
      end
    end
  end
  fires.save()
end

local function least(index, after)
  local first = redis.call("ZRANGEBYSCORE", index, "(" .. exact(after), "+inf", "WITHSCORES", "LIMIT", 0, 1)
  return first[2] and tonumber(first[2]) - after or math.huge
end

local function next_in_s(ask, is_cut)
  if mono < world.calm_until then
    return world.calm_until - mono
  end
  local soonest = math.min(least(name("graces"), mono), is_cut and LOOK_AGAIN_S or math.huge)
  for _, queue in ipairs(ask.queues) do
    local comes, plain = least(name("pending", queue), wall), least(name("plain", queue), wall)
    soonest = math.min(soonest, comes, plain, least(name("claimed", queue), mono))
  end
  return soonest
end

local function renewed(fire)
  if fire.expires ~= mono + fire.ttl or fire.doubted then
    fires.touch(fire)
    fire.expires, fire.doubted = mono + fire.ttl, nil
  end
  return fire
end

-- What is claimed under this ask, renewed.
local function claims_of(ask)
  local claims, keys, jobs, number = {}, {}, {}, exact(ask.number)
  for _, fire in ipairs(fires.fetch(redis.call("ZRANGEBYSCORE", name("life", ask.node), number, number))) do
    if fires.is_live(fire) then
      renewed(fire)
      keys[#keys + 1], jobs[#jobs + 1] = fire.key, fire.job
      claims[#claims + 1] = {
        fence = exact(fire.fence),
        attempt = fire.attempt,
        ttl_s = exact(fire.ttl),
        expires_at = exact(wall + fire.ttl),
        sentence = fire.sentence,
      }
    end
  end
  for place, success in ipairs(fires.fields("succeeded", jobs)) do
    claims[place].success = success or nil
  end
  return claims, fires.fields("texts", keys)
end

local function claim(ask)
  local packed, is_cut = redis.call("HGET", name("asks"), ask.node), false
  if mono >= world.calm_until and ask.number > (packed and cmsgpack.unpack(packed).number or 0) then
    redis.call("HSET", name("asks"), ask.node, cmsgpack.pack({ number = ask.number, at = mono }))
    bury(ask.dead)
    is_cut = grant_due(ask)
    fires.save()
  end
  local claims, texts = claims_of(ask)
  fires.save()
  local soonest = next_in_s(ask, is_cut)
  return { claims = claims, next_in_s = soonest < math.huge and exact(soonest) or nil }, texts
end

verbs.claim = claim
function verbs.bury(lives)
  bury(lives)
  return true
end
