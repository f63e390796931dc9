-- The indexes of a fire that is not a plain message.  This part is set up at its first use in a call.

local general = {}

local function waiting_of(fire)
  if fire.is_apart then
    return messages.box(fire.queue).waiting
  end
  local is_free = fire.origin == "push" or fire.origin == "manual"
  local is_plain = is_free and not (fire.lane or fire.start_by or fire.sentence)
  return name(is_plain and "plain" or "pending", fire.queue)
end

-- The indices that a fire stands in, and where.
function general.places(fire)
  local there = {}
  if fire.state == "over" then
    there[name("over")] = fire.over_at
    if fire.is_apart and is_dead(fire.outcome) then
      there[name("dead", fire.queue)] = fire.due
    end
    return there
  end
  if fire.state == "pending" and fire.aside then
    there[name(fire.is_apart and "apart" or "aside", fire.queue)] = fire.run_at
    there[name("behind", fire.aside)] = fire.run_at
    if fire.start_by and fire.attempt == 0 then
      there[name("ends")] = fire.start_by
    end
  elseif fire.state == "pending" then
    there[waiting_of(fire)] = fire.run_at
  else
    there[name(fire.is_apart and "taken" or "claimed", fire.queue)] = fire.expires
    there[name("life", fire.node)] = fire.ask
  end
  if fire.lane then
    if fire.state == "pending" then
      there[name("lane", fire.lane)] = fire.run_at
    end
    if fire.state == "claimed" and not fire.sentence then
      there[name("held", fire.lane)] = fire.id
    elseif fire.state == "pending" and fire.waits then
      there[name("waits", fire.lane)] = fire.id
    end
  end
  return there
end

-- By its nominal instant a fire stands among those that are open, then among those that are over; a message in
-- its job's book, and then also among those that are over.
local function file_away(key, change)
  local fire = change.fire
  local index = not fire.is_forgotten and (fire.state == "over" and "done" or "open")
  if index == change.index then
    return
  elseif fire.is_apart then
    local names = messages.index(fire.job)
    if not index then
      write("ZREM", names.book, key)
      write("ZREM", names.done, key)
    else
      write("ZADD", index == "done" and names.done or names.book, fire.due, key)
    end
    return
  end
  if change.index then
    write("ZREM", name(change.index), key)
    write("ZREM", name(change.index, fire.job), key)
  end
  if index then
    write("ZADD", name(index), fire.due, key)
    write("ZADD", name(index, fire.job), fire.due, key)
  end
end

local has_wakes -- nil: nobody has looked in this call

each_call(function() has_wakes = nil end)

-- A place of the lane may be free: the next ask is to look at those who were parked for it.
local function wake_lane(lane)
  if has_wakes == nil then
    has_wakes = redis.call("EXISTS", name("wakes")) == 1
  end
  for _, behind in ipairs(has_wakes and redis.call("SMEMBERS", name("crowd", lane)) or {}) do
    redis.call("ZADD", name("wakes"), 0, behind) -- before those that are only looked at now and then
  end
end

function general.write(key, change)
  local fire, now = change.fire, {}
  if fire.is_forgotten then
    write("HDEL", name("states"), key)
  else
    fire.key, now = nil, general.places(fire)
    if fire.is_apart and fire.state == "pending" then
      look_again()
    end
    write("HSET", name("states"), key, cmsgpack.pack(fire))
    fire.key = key
  end
  file_away(key, change)
  local held = fire.lane and name("held", fire.lane)
  if held and change.was[held] and (not now[held] or fire.expires <= mono) then
    wake_lane(fire.lane)
  end
  for index in pairs(change.was) do
    if not now[index] then
      write("ZREM", index, key)
    end
  end
  for index, score in pairs(now) do
    if change.was[index] ~= score then
      write("ZADD", index, score, key)
    end
  end
end

