-- The server's clock was set, or may have been.

local function each_pending(visit)
  for _, queue in ipairs(call("SMEMBERS", prefix .. "queues")) do
    for _, tier in ipairs({ "p", "j", "h" }) do
      for _, key in ipairs(call("ZRANGE", prefix .. "due:" .. tier .. ":" .. queue, 0, -1)) do
        local one = read_line(key)
        if one then
          visit(one)
        end
      end
    end
  end
end

-- Gives claims that expire after that reading of `steady` a later expiry, which `later(one)` returns, if any.
local function prolong(after, version, later)
  for _, queue in ipairs(call("SMEMBERS", prefix .. "queues")) do
    for _, kind in ipairs({ "live:", "taken:" }) do
      local index = prefix .. kind .. queue
      for _, key in ipairs(call("ZRANGEBYSCORE", index, "(" .. exact(after), "+inf")) do
        local one = read_line(key)
        local expires = one and later(one)
        if expires then
          one.expires = expires
          write_line(one, version)
          call("ZADD", index, exact(expires), key)
          if one.lane ~= "" then
            call("ZADD", prefix .. "laned", exact(expires), key)
          end
        end
      end
    end
  end
end

-- What is due after a delay moves with the clock; instants of a schedule do not.  All is looked at again.
local function move_delays(step, version)
  each_pending(function(one)
    reschedule(one, version, one.run_at + (one.moves and step or 0))
  end)
end

local function on_step(step, moved)
  header.version, is_changed = header.version + 1, true
  if step == 0 then
    -- It is unknown whether the clock was set: a claim whose work may go on gets a new ttl, once.
    prolong(steady - moved, header.version, function(one)
      if moved > one.ttl / 2 and not one.is_doubted then
        one.is_doubted = true
        return steady + one.ttl
      end
    end)
    return
  end
  move_delays(step, header.version)
  -- Calls that were held up, as by a server that stood still, reported too little time: `steady` fell behind and now
  -- leaps ahead.  Claims that were granted or renewed meanwhile must not lose that time.
  local leapt = moved >= 0 and math.max(-step, 0) or 0
  if leapt > 0 then
    prolong(steady - leapt, header.version, function(one)
      return math.min(one.expires + leapt, steady + one.ttl)
    end)
  end
end

local function answer()
  arrive(on_step)
  return { leave() }
end
