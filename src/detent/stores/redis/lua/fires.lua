-- Fires and their indexes.  A fire is one table during a call.  Changed fires are written at the end, with all their
-- indexes.
--
-- texts:          key -> the fire as it was recorded; never changed
-- states:         key -> its state, and the fields that the lane rules read
-- pending:QUEUE   by when it is due (again); lane:LANE the same, of one lane
-- plain:QUEUE     the same, of fires that need only room on a node
-- claimed:QUEUE   by when the claim expires (mono); life:NODE by the number of the ask
-- held:LANE       fires that are claimed to run; waits:LANE fires that wait; both in the order of recording
-- aside:QUEUE     parked fires (`parked.lua`), instead of `pending`
-- open, open:JOB  unfinished fires by nominal instant; done, done:JOB finished ones; over: by when they ended
-- tails, results  output and result of an attempt, by key and number

local fires = {}
local cache, dirty, changed, watermarks = {}, {}, {}, {} -- `changed`: messages, in order
local absent, texts = {}, {} -- keys that nobody has, and the texts of those that are recorded now
local met, succeeded = {}, {} -- set -> names to be added to it; jobs

each_call(function()
  cache, dirty, changed, watermarks = emptied(cache), emptied(dirty), emptied(changed), emptied(watermarks)
  absent, texts, met, succeeded = emptied(absent), emptied(texts), emptied(met), emptied(succeeded)
end)

-- A name to be added to the set that knows all such.
local function meet(set, one)
  met[set] = met[set] or {}
  met[set][one] = true
end

local function known(key, packed, kind)
  local fire = false
  if packed and kind == "messages" then
    fire = messages.unpack(key, packed)
  elseif packed then
    fire = cmsgpack.unpack(packed)
    fire.key = key
  end
  cache[key] = fire
  return fire
end

function fires.get(key)
  if cache[key] == nil then
    return known(key, redis.call("HGET", KEPT, key), "messages")
      or known(key, redis.call("HGET", name("states"), key), "states")
  end
  return cache[key]
end

function fires.open(key)
  local fire = fires.get(key)
  return fire and fire.state ~= "over" and fire or nil
end

-- Answers those that there are none of, of this kind; nil: there are all.
local function read(keys, kind)
  local missing
  for place, packed in ipairs(fields(kind, keys)) do
    if not known(keys[place], packed, kind) then
      missing = missing or {}
      missing[#missing + 1] = keys[place]
    end
  end
  return missing
end

-- Read these at once, which are mostly of this kind; answers those that there are, in order.
function fires.fetch(keys, kind)
  local there, fresh = {}, {}
  for place = 1, #keys do
    if cache[keys[place]] == nil then
      fresh[#fresh + 1] = keys[place]
    end
  end
  local missing = #fresh > 0 and read(fresh, kind or "states")
  if missing then
    read(missing, kind == "messages" and "states" or "messages")
  end
  for place = 1, #keys do
    there[#there + 1] = cache[keys[place]] or nil
  end
  return there
end

-- To be called before a fire is changed.
function fires.touch(fire)
  if fire.is_light then
    if not fire.is_dirty then
      fire.is_dirty, fire.was_state = true, fire.state
      if not fire.is_new then
        fire.was, fire.was_score = messages.place(fire)
      end
      changed[#changed + 1] = fire
    end
  elseif not dirty[fire.key] then
    local index = fire.state == "over" and "done" or "open"
    dirty[fire.key] = { fire = fire, was = the_general().places(fire), index = index }
  end
  return fire
end

-- Those of these that were parked are judged again.
function fires.bring_back(keys)
  for _, fire in ipairs(fires.fetch(keys)) do
    if fire.aside then
      fires.touch(fire).aside = nil
    end
  end
end

function fires.forget(fire)
  fires.touch(fire)
  fire.is_forgotten = true
  cache[fire.key], texts[fire.key], absent[fire.key] = false, nil, nil
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
function fires.watermark_of(job)
  if watermarks[job] == nil then
    local packed = redis.call("HGET", name("marks"), job)
    watermarks[job] = packed and cmsgpack.unpack(packed)
  end
  return watermarks[job]
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
      redis.call("HSET", name("reached"), fire.job, fire.due)
    end
  end
end

function fires.finish(fire, outcome)
  fire.state, fire.outcome, fire.over_at = "over", outcome, wall
  if fire.origin ~= "hook" and is_success(outcome) then
    succeeded[fire.job] = true
  end
  meet("jobs", fire.job)
  fires.drop_late_hooks(fire)
end

-- What is written whatever became of the fires: sets of names, texts, when a job succeeded last.
local function save_names()
  for set, some in pairs(met) do
    local list = {}
    for one in pairs(some) do
      list[#list + 1] = one
    end
    call_with("SADD", name(set), list)
  end
  if next(succeeded) ~= nil then
    local list, now = {}, exact(wall)
    for job in pairs(succeeded) do
      list[#list + 1], list[#list + 2] = job, now
    end
    call_with("HSET", name("succeeded"), list)
  end
  if next(texts) ~= nil then
    local list = {}
    for key, text in pairs(texts) do
      list[#list + 1], list[#list + 2] = key, text
    end
    call_with("HSET", name("texts"), list)
  end
  met, succeeded, texts = emptied(met), emptied(succeeded), emptied(texts)
end

function fires.save()
  local some, others = changed, dirty
  if #some == 0 and next(others) == nil then
    return
  end
  changed, dirty = {}, emptied(dirty)
  if #some ~= 1 or next(others) ~= nil then
    begin_batches()
  end
  for key, change in pairs(others) do
    the_general().write(key, change)
  end
  for place = 1, #some do
    messages.write(some[place])
  end
  end_batches()
  save_names()
end
