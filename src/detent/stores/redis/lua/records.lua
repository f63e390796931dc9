-- Reads records, and changes the times of those that a client has not read.

-- Calls `visit(from, to)` for parts of 1..count that one command can have as arguments.
local function each_part(count, visit)
  for from = 1, count, CHUNK do
    visit(from, math.min(from + CHUNK - 1, count))
  end
end

-- The lines and texts of these keys, one after the other.  Leaves out keys that do not exist.
local function records_of(keys, into)
  local out = into or {}
  each_part(#keys, function(from, to)
    local lines = call("HMGET", prefix .. "states", unpack(keys, from, to))
    local texts = call("HMGET", prefix .. "texts", unpack(keys, from, to))
    for place = 1, #lines do
      if lines[place] and texts[place] then
        out[#out + 1] = lines[place]
        out[#out + 1] = texts[place]
      end
    end
  end)
  return out
end

local LINE = "^(%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (%S+) (.*)$"

local function read_line(key)
  local text = call("HGET", prefix .. "states", key)
  if not text then
    return nil
  end
  local _, fence, id, run_at, look_at, flags, kind, expires, ttl, place, rest = string.match(text, LINE)
  local lane, queue, job = string.match(place, "^(.-)|(.-)|(.*)$")
  return {
    key = key, fence = fence, id = id, run_at = tonumber(run_at), look_at = tonumber(look_at), flags = flags,
    kind = kind, expires = tonumber(expires), ttl = tonumber(ttl), place = place, rest = rest,
    lane = lane, queue = queue, job = job,
    state = string.sub(flags, 1, 1), tier = string.sub(flags, 2, 2), is_push = string.sub(flags, 3, 3) == "1",
    is_parked = string.sub(flags, 4, 4) == "1", is_doubted = string.sub(flags, 5, 5) == "1",
    moves = string.sub(flags, 6, 6) == "1",
  }
end

local function write_line(one, version)
  local flags = string.sub(one.flags, 1, 3) .. (one.is_parked and "1" or "0") .. (one.is_doubted and "1" or "0")
    .. string.sub(one.flags, 6, 6)
  call("HSET", prefix .. "states", one.key, table.concat({
    exact(version), one.fence, one.id, exact(one.run_at), exact(one.look_at), flags, one.kind, exact(one.expires),
    exact(one.ttl), one.place, one.rest,
  }, " "))
end

-- Changes when a pending record is due, and unparks it; with `at` it stays parked, and is looked at then or before.
local function reschedule(one, version, run_at, at)
  local key = one.key
  if one.is_parked and not at then
    one.is_parked = false
    call("ZREM", prefix .. "parked:" .. one.lane .. "|" .. one.queue, key)
    call("ZREM", prefix .. "aside:" .. one.queue, key)
    call("ZREM", prefix .. "stalled:" .. one.job, key)
  end
  one.look_at = at and math.min(one.look_at, at) or run_at
  call("ZADD", prefix .. "due:" .. one.tier .. ":" .. one.queue, exact(one.look_at), key)
  if run_at ~= one.run_at then
    one.run_at = run_at
    if one.lane ~= "" then
      call("ZADD", prefix .. "rivals:" .. one.lane, exact(run_at), key)
    end
    if one.is_push and one.tier ~= "p" then
      call("ZADD", prefix .. "letters:" .. one.queue, exact(run_at), key)
    end
  end
  write_line(one, version)
end
