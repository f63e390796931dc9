-- The arrival of a call, which finds out whether the server's clock was set, and follows that step.
--
-- A link with a long round trip must not be taken for a clock that is set, and a client without a reading cannot tell a
-- step from a time without calls.  So a call that finds a step returns nothing; the client sends it again, and says how
-- long the first one was under way.  Only the second call (`IS_SECOND`) follows the step.

local IS_SECOND = ARGV[8] ~= ""

-- Calls `visit(key, line, index)` for the records of these indexes of each queue, from this score on.
local function each_record(kinds, from, visit)
  for _, queue in ipairs(call("SMEMBERS", prefix .. "queues")) do
    for _, kind in ipairs(kinds) do
      local index = prefix .. kind .. queue
      for _, key in ipairs(call("ZRANGEBYSCORE", index, from, "+inf")) do
        local line = read_line(key)
        if line then
          visit(key, line, index)
        end
      end
    end
  end
end

-- Gives claims that expire after that reading of `steady` a later expiry, which `later(line)` returns, if any.
local function prolong(after, later)
  each_record({ "live:", "taken:" }, "(" .. exact(after), function(key, line, index)
    local expires = later(line)
    if expires then
      line[EXPIRES] = exact(expires)
      write_line(key, line)
      call("ZADD", index, line[EXPIRES], key)
      call("ZADD", prefix .. "laned", "XX", line[EXPIRES], key)
    end
  end)
end

-- A step of 0 seconds: whether the clock was set is unknown.
local function follow(step, moved)
  header.version, is_changed = header.version + 1, true
  if step == 0 then
    -- A claim whose work may go on gets a new ttl, once.
    return prolong(steady - moved, function(line)
      if moved > line[TTL] / 2 and line[DOUBTED] == "0" then
        line[DOUBTED] = "1"
        return steady + line[TTL]
      end
    end)
  end
  -- What is due after a delay moves with the clock; instants of a schedule do not.  All is looked at again.
  each_record({ "due:p:", "due:j:", "due:h:" }, "-inf", function(key, line)
    reschedule(key, line, line[MOVES] == "1" and step or 0)
  end)
  -- Calls that were held up, as by a server that stood still, reported too little time: `steady` fell behind and now
  -- leaps ahead.  Claims that were granted or renewed meanwhile must not lose that time.
  local leapt = moved >= 0 and math.max(-step, 0) or 0
  if leapt > 0 then
    prolong(steady - leapt, function(line)
      return math.min(line[EXPIRES] + leapt, steady + line[TTL])
    end)
  end
end

-- How far the clock was set since the last call, and whether it moved in a way that has no explanation.
local function step_of(moved)
  if ARGV[3] ~= header.epoch then
    return math.min(moved, 0), moved > STEP_S
  end
  local since = ARGV[4] - (header.last - header.ahead)
  local least, most = math.max(0, since + ARGV[6]), math.max(0, since + ARGV[7])
  if moved < 0 or moved < least - STEP_S or moved > most + STEP_S then
    return moved - least, false
  end
  return 0, false
end

-- Reads the clocks and the header.  False: the client must call again.
local function arrive()
  is_changed = ARGV[1] ~= ""
  local time = call("TIME")
  wall = tonumber(ARGV[2]) or time[1] + time[2] / 1000000
  read_header()
  local replid = string.match(call("INFO", "replication"), "master_replid:(%x+)") or "none"
  local step, moved, is_doubtful = 0, 0, false
  if header then
    moved = wall - header.last
    step, is_doubtful = step_of(moved)
    header.ahead = header.ahead + step
    steady = wall - header.ahead
    is_changed = is_changed or step ~= 0 or moved > TOUCH_S or moved < 0
    if header.replid ~= replid then
      new_epoch(replid)
    end
  else
    header = { schema = SCHEMA, version = 0, fence = 0, longest = 0, generation = 0, controls = 0 }
    header.ahead, header.quarantined_until = 0, 0
    steady = wall
    begin_epoch(replid)
  end
  if ARGV[3] ~= "" and ARGV[3] ~= header.epoch then
    heed_older_epoch()
  end
  local is_step = math.abs(step) > STEP_S
  if IS_SECOND and (is_step or is_doubtful) then
    follow(is_step and step or 0, moved)
  end
  header.last = is_changed and wall or header.last
  return IS_SECOND or not (is_step or is_doubtful)
end
