-- Whether a due fire may run now: `rules/lanes.py` in Lua, with the same order and the same texts.  Most messages have
-- no lane, so this part is set up at its first use in a call.

local LATE_S = 60
local lanes = {}

each_call(function() lanes.seen, lanes.facts = {}, {} end)

-- Read once a call.
local function fact(kind, of, read)
  local at = kind .. " " .. of
  if lanes.facts[at] == nil then
    lanes.facts[at] = read() or false
  end
  return lanes.facts[at]
end

-- Why the job is paused; false: it is not.
function lanes.paused(job)
  return fact("pause", job, function() return note_of(redis.call("HGET", name("notes"), "pause/" .. job)) end)
end

local function newer_is_due(me)
  local newer = redis.call("ZRANGEBYSCORE", name("open", me.job), "(" .. exact(me.due), wall)
  for _, fire in ipairs(fires.fetch(newer)) do
    if fire.origin == "schedule" and fire.state ~= "over" then
      return true
    end
  end
  return false
end

-- How many places of a lane are kept by the grace of fires that are over, and when (mono) the first is free.
local function graces(lane)
  local all = fact("graces", "", function()
    local kept = { counts = {}, ends = {} }
    local flat = redis.call("ZRANGEBYSCORE", name("graces"), "(" .. exact(mono), "+inf", "WITHSCORES")
    for place = 1, #flat, 2 do
      local of = string.match(flat[place], "^%d+ (.*)$")
      kept.counts[of], kept.ends[of] = (kept.counts[of] or 0) + 1, kept.ends[of] or tonumber(flat[place + 1])
    end
    return kept
  end)
  return all.counts[lane] or 0, all.ends[lane] or math.huge
end

-- The claims of a lane, as they were recorded; `hold` adds to them.
local function held(lane)
  local seen = lanes.seen[lane]
  if not seen then
    seen = { held = fires.fetch(redis.call("ZRANGE", name("held", lane), 0, -1)) }
    lanes.seen[lane] = seen
  end
  return seen
end

-- It is claimed now.
function lanes.hold(me)
  local there = held(me.lane).held
  for _, one in ipairs(there) do
    if one == me then
      return
    end
  end
  table.insert(there, me)
  table.sort(there, function(one, other) return one.id < other.id end)
end

-- It was told to wait.
function lanes.wait(me)
  local seen = held(me.lane)
  seen.told = seen.told and seen.told.id < me.id and seen.told or me
end

-- The first of those who wait.  There may be thousands, of which those are passed over that are claimed by now.
local function first_waiting(lane)
  local first, place, index = held(lane).told, 0, name("waits", lane)
  first = first and first.state == "pending" and first or nil
  while true do
    local one = fires.fetch(redis.call("ZRANGE", index, place, place))[1]
    if not one or first and first.id < one.id then
      return first
    elseif one.state == "pending" and one.waits and not one.is_forgotten then
      return one
    end
    place = place + 1
  end
end

local function holds(one)
  return fires.is_live(one) and not one.sentence
end

local function holders(lane)
  local there = {}
  for _, one in ipairs(held(lane).held) do
    if holds(one) then
      there[#there + 1] = one
    end
  end
  return there
end

-- How many more it has room for, of those that find it so wide.
function lanes.room(lane, width)
  local kept = graces(lane)
  return width - #holders(lane) - kept
end

local function room(me)
  return lanes.room(me.lane, me.width)
end

-- Behind what one is parked that finds its lane full, among others that are alike to whoever asks.
local function behind(me)
  return table.concat({ me.width, me.lane, me.queue, me.job }, "\n")
end

-- When (mono) the first place of a lane will be free, if nobody renews it or gives it back before.
function lanes.frees_at(lane)
  local _, first = graces(lane)
  for _, one in ipairs(holders(lane)) do
    first = math.min(first, one.expires)
  end
  return first
end

local function is_late(me)
  return me.origin == "schedule" and me.attempt == 0 and not me.waits and me.due + LATE_S < wall
end

local function catch_up(me)
  local watermark = fires.watermark_of(me.job)
  if me.catch_up == "latest" and watermark and watermark.at < wall then
    return "hold", nil, nil, "of " .. me.job
  elseif me.lane and room(me) <= 0 then
    return "hold", nil, nil, behind(me)
  elseif me.catch_up == "latest" and newer_is_due(me) then
    return "sentence", "missed a newer instant is due"
  end
  return "run"
end

local function forbid(me)
  local holder = holders(me.lane)[1].key
  if me.attempt > 0 or me.origin == "push" then
    return "sentence", string.match(me.outcome or "failed", "^%S+") .. " contended by " .. holder
  end
  return "sentence", "skipped by " .. holder
end

local function queue(me)
  if me.waits or me.attempt > 0 or me.origin == "push" then
    return "wait", nil, nil, behind(me)
  end
  local waiting = first_waiting(me.lane)
  if waiting then
    return "sentence", "skipped " .. waiting.key .. " waits already"
  end
  return "wait"
end

local function may_replace(one)
  if one.state ~= "pending" or one.run_at > wall or one.sentence or one.is_forgotten or is_late(one) then
    return false
  end
  return one.attempt > 0 or not one.start_by or one.start_by >= wall
end

-- Those who hold the lane or are due for it, newest first; who is no longer one of them is passed over.
local function rivals(lane)
  local seen = held(lane)
  if not seen.rivals then
    local due = fires.fetch(redis.call("ZRANGEBYSCORE", name("lane", lane), "-inf", wall))
    local there, is_there = {}, {}
    for _, some in ipairs({ seen.held, due }) do
      for _, one in ipairs(some) do
        if not is_there[one] then
          is_there[one] = true
          there[#there + 1] = one
        end
      end
    end
    table.sort(there, function(one, other)
      return one.due > other.due or one.due == other.due and one.key > other.key
    end)
    seen.rivals = there
  end
  return seen.rivals
end

-- The newest `width` of the lane: whether `me` is one, who they are, and the newest of all.
local function heirs(me)
  local count, newest, are = 0, nil, {}
  for _, one in ipairs(rivals(me.lane)) do
    if holds(one) or may_replace(one) then
      count, newest, are[one.key] = count + 1, newest or one.key, true
      if count == me.width then
        break
      end
    end
  end
  return are, newest
end

local function replace(me)
  local are, newest = heirs(me)
  if not are[me.key] then
    return "sentence", "replaced by " .. newest
  elseif room(me) > 0 then
    return "run"
  elseif me.attempt > 0 then
    return "wait"
  end
  local gone = {}
  for _, one in ipairs(holders(me.lane)) do
    if not are[one.key] and not one.stop then
      gone[#gone + 1] = one
    end
  end
  return "wait", nil, gone
end

-- The step (run, wait, hold, sentence) for one that has no sentence yet, the sentence, who must go for it, and behind
-- what it may be parked meanwhile (`parked.lua`).
function lanes.judge(me)
  if is_late(me) then
    return catch_up(me)
  elseif not me.lane then
    return "run"
  elseif me.concurrency == "Replace" then
    return replace(me)
  end
  local left = room(me)
  if left > 0 then
    return "run"
  elseif left + (graces(me.lane)) > 0 then
    return "wait", nil, nil, me.concurrency == "Queue" and behind(me) or nil
  end
  return (me.concurrency == "Queue" and queue or forbid)(me)
end
