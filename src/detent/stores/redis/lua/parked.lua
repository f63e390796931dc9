-- Fires that cannot run now are parked, so that asks do not read them: there may be a hundred thousand.  A parked fire
-- is in no index that asks read, until the reason is gone:
--
--   WIDTH LANE QUEUE JOB (in lines)  the lane is full for fires of this width: until a place is free
--   "of JOB"                         a late instant of a job that is not planned up to now: until it is
--
-- Other events bring it back too: its deadline to start, a pause, a change of its job, a step of the clock.
--
-- aside:QUEUE, apart:QUEUE  parked fires and messages, by when they are due (again)
-- behind:WHAT     the same, by the reason
-- crowd:LANE      the reasons that wait for the lane; wakes: by when (mono) to check for a free place
-- ends            fires with a deadline to start, by deadline

local MORE = 3 -- than there are places
local WAKES_MAX, ENDS_MAX = 50, 200 -- that are looked at, and that are brought back to be settled
local parked = {}

-- None: it is no lane.
local function width_and_lane(behind)
  return string.match(behind, "^(%d+)\n(.-)\n")
end

function parked.put(fire, behind)
  fires.touch(fire).aside = behind
  local _, lane = width_and_lane(behind)
  if lane and redis.call("SADD", name("crowd", lane), behind) == 1 then
    redis.call("ZADD", name("wakes"), the_lanes().frees_at(lane), behind)
  end
end

-- Bring back the first of those who wait for a lane, if it has room; while it has, the next ask goes on.
local function look_at(behind)
  local width, lane = width_and_lane(behind)
  local room = the_lanes().room(lane, tonumber(width))
  if room <= 0 then
    redis.call("ZADD", name("wakes"), the_lanes().frees_at(lane), behind)
    return
  end
  local most = room + MORE
  local keys = redis.call("ZRANGE", name("behind", behind), 0, most - 1)
  fires.bring_back(keys)
  if #keys < most then
    redis.call("SREM", name("crowd", lane), behind)
    redis.call("ZREM", name("wakes"), behind)
  else
    redis.call("ZADD", name("wakes"), mono, behind) -- after those that nobody has looked at for longer
  end
end

-- Bring back what may be able to run by now, or has to be settled; whether there may be more.
function parked.look()
  local wakes = redis.call("ZRANGEBYSCORE", name("wakes"), "-inf", mono, "LIMIT", 0, WAKES_MAX)
  for _, behind in ipairs(wakes) do
    look_at(behind)
  end
  fires.bring_back(redis.call("ZRANGEBYSCORE", name("ends"), "-inf", "(" .. exact(wall), "LIMIT", 0, ENDS_MAX))
  return #wakes == WAKES_MAX
end
