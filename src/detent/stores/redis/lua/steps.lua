-- The server's clock was set, or may have been.

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

local function on_step(step, moved)
  header.version, is_changed = header.version + 1, true
  if step == 0 then
    -- Whether the clock was set is unknown: a claim whose work may go on gets a new ttl, once.
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

arrive(on_step)
return { leave() }
