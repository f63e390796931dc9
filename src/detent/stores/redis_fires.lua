-- Fires and their indices.  A fire is one table for the length of a call, however it was found; what
-- changed is written at the end, with every index that it stands in.
--
-- texts:          key -> the fire as it was recorded, which nobody here changes
-- states:         key -> what became of it, and what the rules of lanes need
-- pending:QUEUE   by the instant it is due (again); lane:LANE the same, of one lane
-- plain:QUEUE     the same, of those that nothing but room on a node can keep from running
-- claimed:QUEUE   by when the claim expires (mono); life:NODE by the number of the ask
-- held:LANE       those that hold a lane or wait for it, as they were recorded
-- open, open:JOB  not over, by their nominal instant; done, done:JOB over; over: by when that was
-- tails, results  what an attempt left, by key and number

local CHUNK = 500 -- Lua passes no more than some thousand values at once

local cache, dirty, marks, fires = {}, {}, {}, {}

local function known(key, packed)
  local fire = packed and cmsgpack.unpack(packed) or false
  if fire then
    fire.key = key
  end
  cache[key] = fire
  return fire
end

function fires.get(key)
  if cache[key] == nil then
    return known(key, redis.call("HGET", name("states"), key))
  end
  return cache[key]
end

function fires.open(key)
  local fire = fires.get(key)
  return fire and fire.state ~= "over" and fire or nil
end

-- The first of what several sources have next, in this order; it is taken from its source.
function fires.first_of(sources, is_before)
  local first, from
  for _, source in ipairs(sources) do
    local one = source.peek()
    if one and (not first or is_before(one, first)) then
      first, from = one, source
    end
  end
  if from then
    from.skip()
  end
  return first
end

-- The values of many fields of a hash; false where there is none.
function fires.fields(hash, fields)
  local values = {}
  for first = 1, #fields, CHUNK do
    local last = math.min(first + CHUNK - 1, #fields)
    for _, value in ipairs(redis.call("HMGET", name(hash), unpack(fields, first, last))) do
      values[#values + 1] = value
    end
  end
  return values
end

-- Read these at once; answers those that there are, in order.
function fires.fetch(keys)
  local missing, there = {}, {}
  for _, key in ipairs(keys) do
    if cache[key] == nil then
      missing[#missing + 1] = key
    end
  end
  for place, packed in ipairs(fires.fields("states", missing)) do
    known(missing[place], packed)
  end
  for _, key in ipairs(keys) do
    if cache[key] then
      there[#there + 1] = cache[key]
    end
  end
  return there
end

local function waiting_of(fire)
  local is_free = fire.origin == "push" or fire.origin == "manual"
  local is_plain = is_free and not (fire.lane or fire.start_by or fire.sentence)
  return name(is_plain and "plain" or "pending", fire.queue)
end

-- The indices that a fire stands in, and where.
local function places(fire)
  local there = {}
  if fire.state == "over" then
    there[name("over")] = fire.over_at
    return there
  end
  if fire.state == "pending" then
    there[waiting_of(fire)] = fire.run_at
  else
    there[name("claimed", fire.queue)] = fire.expires
    there[name("life", fire.node)] = fire.ask
  end
  if fire.lane then
    if fire.state == "pending" then
      there[name("lane", fire.lane)] = fire.run_at
    end
    if fire.state == "claimed" or fire.waits then
      there[name("held", fire.lane)] = fire.id
    end
  end
  return there
end

-- To be called before a fire is changed.
function fires.touch(fire)
  if not dirty[fire.key] then
    dirty[fire.key] = { fire = fire, was = places(fire), shelf = fire.state == "over" and "done" or "open" }
  end
  return fire
end

function fires.record(text, run_at)
  local given = cjson.decode(text)
  if redis.call("HSETNX", name("texts"), given.key, text) == 0 then
    return false
  end
  world.recorded = world.recorded + 1
  local fire = given.rules
  fire.key, fire.id, fire.state, fire.run_at, fire.attempt = given.key, world.recorded, "pending", run_at, 0
  fire.job, fire.due, fire.queue, fire.origin = given.job, given.due, given.queue, given.origin
  fire.start_by, fire.first = given.start_by, given.first
  redis.call("SADD", name("queues"), fire.queue)
  cache[fire.key] = fire
  dirty[fire.key] = { fire = fire, was = {} }
  return true
end

function fires.forget(fire)
  fires.touch(fire)
  fire.is_forgotten = true
  cache[fire.key] = false
  local left = {}
  for number = 1, #(fire.attempts or {}) do
    left[number] = fire.key .. "#" .. number
  end
  if #left > 0 then
    redis.call("HDEL", name("tails"), unpack(left))
    redis.call("HDEL", name("results"), unpack(left))
  end
  redis.call("HDEL", name("texts"), fire.key)
end

-- It started, or is over: whoever was to be told that it is late need not be.
function fires.drop_late_hooks(fire)
  for _, hook in ipairs(fire.late or {}) do
    local told = fires.get(fire.key .. "/" .. hook)
    if told and told.state == "pending" then
      fires.forget(told)
    end
  end
end

-- Up to where the job is planned, and by which revision of it; false: there is no such job.
function fires.mark_of(job)
  if marks[job] == nil then
    local packed = redis.call("HGET", name("marks"), job)
    marks[job] = packed and cmsgpack.unpack(packed)
  end
  return marks[job]
end

function fires.is_live(fire)
  return fire.state == "claimed" and fire.expires > mono
end

function fires.is_due(fire)
  if fire.state == "claimed" then
    return fire.expires <= mono
  end
  return fire.run_at <= wall
end

-- This instant must not be recorded again, also when its row is gone and the clock set back.
function fires.reach(fire)
  if fire.origin == "schedule" then
    local reached = tonumber(redis.call("HGET", name("reached"), fire.job))
    if not reached or reached < fire.due then
      redis.call("HSET", name("reached"), fire.job, exact(fire.due))
    end
  end
end

function fires.finish(fire, outcome)
  fire.state, fire.outcome, fire.over_at = "over", outcome, wall
  if string.match(outcome, "^%S+") == "succeeded" and fire.origin ~= "hook" then
    redis.call("HSET", name("succeeded"), fire.job, exact(wall))
  end
  redis.call("SADD", name("jobs"), fire.job)
  fires.drop_late_hooks(fire)
end

local function add(batches, index, ...)
  local values = batches[index] or {}
  batches[index] = values
  for _, value in ipairs({ ... }) do
    values[#values + 1] = value
  end
end

-- By its nominal instant a fire stands among those that are open, then among those that are over.
local function shelve(key, change, adds, removes)
  local fire = change.fire
  local shelf = not fire.is_forgotten and (fire.state == "over" and "done" or "open")
  if shelf ~= change.shelf then
    if change.shelf then
      add(removes, name(change.shelf), key)
      add(removes, name(change.shelf, fire.job), key)
    end
    if shelf then
      add(adds, name(shelf), exact(fire.due), key)
      add(adds, name(shelf, fire.job), exact(fire.due), key)
    end
  end
end

-- A call of the server costs more than what it does here: values for one key are given to it together.
local function give(command, batches)
  for index, values in pairs(batches) do
    for first = 1, #values, CHUNK do
      redis.call(command, index, unpack(values, first, math.min(first + CHUNK - 1, #values)))
    end
  end
end

function fires.save()
  if not next(dirty) then
    return
  end
  local states, gone, adds, removes = {}, {}, {}, {}
  for key, change in pairs(dirty) do
    local fire, now = change.fire, {}
    if fire.is_forgotten then
      add(gone, name("states"), key)
    else
      fire.key, now = nil, places(fire)
      add(states, name("states"), key, cmsgpack.pack(fire))
      fire.key = key
    end
    shelve(key, change, adds, removes)
    for index in pairs(change.was) do
      if not now[index] then
        add(removes, index, key)
      end
    end
    for index, score in pairs(now) do
      if change.was[index] ~= score then
        add(adds, index, exact(score), key)
      end
    end
  end
  dirty = {}
  give("HDEL", gone)
  give("HSET", states)
  give("ZREM", removes)
  give("ZADD", adds)
end

-- The clock was set: retries and delays move along, they are durations; instants of a schedule do not.
function fires.move_waits(step)
  for _, queue in ipairs(redis.call("SMEMBERS", name("queues"))) do
    for _, kind in ipairs({ "pending", "plain" }) do
      for _, fire in ipairs(fires.fetch(redis.call("ZRANGE", name(kind, queue), 0, -1))) do
        if fire.origin ~= "schedule" or fire.run_at ~= fire.due then
          fires.touch(fire).run_at = fire.run_at + step
        end
      end
    end
  end
end

-- Calls that were held up, as by a server that stood still, told of too little time: `mono` fell behind, and
-- now leaps ahead.  Claims that were granted or renewed meanwhile must not lose what it leaps over.
function fires.prolong(leapt)
  for _, queue in ipairs(redis.call("SMEMBERS", name("queues"))) do
    local live = redis.call("ZRANGEBYSCORE", name("claimed", queue), "(" .. exact(mono - leapt), "+inf")
    for _, fire in ipairs(fires.fetch(live)) do
      fires.touch(fire).expires = math.min(fire.expires + leapt, mono + fire.ttl)
    end
  end
end

-- The clock moved, and nobody knows whether it was set: work that may go on gets a fresh ttl, once.
function fires.doubt(moved)
  local before = exact(mono - moved)
  for _, queue in ipairs(redis.call("SMEMBERS", name("queues"))) do
    local live = redis.call("ZRANGEBYSCORE", name("claimed", queue), "(" .. before, "+inf")
    for _, fire in ipairs(fires.fetch(live)) do
      if moved > fire.ttl / 2 and not fire.doubted then
        fires.touch(fire)
        fire.expires, fire.doubted = mono + fire.ttl, true
      end
    end
  end
end
