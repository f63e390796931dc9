-- Reads records, and changes the times of those that a client has not read.  values.py lists the words of a line.

local RUN_AT, LOOK_AT, EXPIRES, TTL, LANE, QUEUE, JOB = 6, 7, 8, 9, 10, 11, 12
local TIER, PARKED, DOUBTED, MOVES = 13, 14, 15, 16
local LINE = "^" .. string.rep("(%S*) ", 16) .. "(.*)$"
local ROW = { "states", "texts", "attempts", "tails" } -- hashes
local IDS = 65536 -- ids that one version has

local function append(list, more)
  for _, one in ipairs(more) do
    list[#list + 1] = one
  end
end

-- The replies to these commands, which only read.  " wall" and " steady" stand for the time.
local function replies_to(commands)
  local out, times = {}, { [" wall"] = exact(wall), [" steady"] = exact(steady) }
  for place, command in ipairs(commands) do
    for at, word in ipairs(command) do
      command[at] = times[word] or word
    end
    out[place] = call(command[1], prefix .. command[2], unpack(command, 3))
  end
  return out
end

-- The keys that these commands reply with.
local function keys_of(commands)
  local keys = {}
  for _, reply in ipairs(replies_to(commands)) do
    append(keys, reply)
  end
  return keys
end

-- The values of these keys in so many hashes, one after the other.  Leaves out keys that do not exist.
local function records_of(keys, count)
  local out, columns, hashes = {}, {}, { unpack(ROW, 1, count or 2) }
  for from = 1, #keys, CHUNK do
    local to = math.min(from + CHUNK - 1, #keys)
    for place, hash in ipairs(hashes) do
      columns[place] = call("HMGET", prefix .. hash, unpack(keys, from, to))
    end
    for row = 1, to - from + 1 do
      if columns[1][row] and columns[2][row] then
        for place = 1, #hashes do
          out[#out + 1] = columns[place][row]
        end
      end
    end
  end
  return out
end

-- What a client may read; each has a function that replies.
local reads = { calls = replies_to, rows = records_of }

-- The records of the keys that these commands reply with.
function reads.found(commands, hashes)
  return records_of(keys_of(commands), hashes)
end

local function answer(request, replies)
  for _, read in ipairs(request) do
    replies[#replies + 1] = reads[read[1]](unpack(read, 2)) or false
  end
  return replies
end

local function read_line(key)
  local text = call("HGET", prefix .. "states", key)
  return text and { string.match(text, LINE) }
end

local function write_line(key, line)
  line[1] = exact(header.version) -- the script has raised it
  call("HSET", prefix .. "states", key, table.concat(line, " "))
end

-- Moves a pending record by so many seconds, and unparks it; with `at` it stays parked, and is looked at then or before.
local function reschedule(key, line, by_s, at)
  local lane, queue, run_at = line[LANE], line[QUEUE], line[RUN_AT] + by_s
  if not at then
    line[PARKED] = "0"
    for _, index in ipairs({ "parked:" .. lane .. "|" .. queue, "aside:" .. queue, "stalled:" .. line[JOB] }) do
      call("ZREM", prefix .. index, key)
    end
  end
  line[RUN_AT], line[LOOK_AT] = exact(run_at), exact(at and math.min(line[LOOK_AT], at) or run_at)
  call("ZADD", prefix .. "due:" .. line[TIER] .. ":" .. queue, line[LOOK_AT], key)
  call("ZADD", prefix .. "rivals:" .. lane, "XX", line[RUN_AT], key)
  call("ZADD", prefix .. "letters:" .. queue, "XX", line[RUN_AT], key)
  write_line(key, line)
end

-- When a record is next due, and when a claim next expires, by these indexes.
function reads.next(by_look_at, by_expiry)
  local function first_after(indexes, now)
    local first = math.huge
    for _, index in ipairs(indexes) do
      local found = call("ZRANGEBYSCORE", prefix .. index, "(" .. exact(now), "+inf", "WITHSCORES", "LIMIT", 0, 1)[2]
      first = math.min(first, found or first)
    end
    return exact(first)
  end
  return { first_after(by_look_at, wall), first_after(by_expiry, steady) }
end

-- The number of the last ask of a node that was committed.
local function last_ask(node)
  return tonumber(string.match(call("HGET", prefix .. "asks", node) or "0", "^%S+"))
end

local function keep_ask(node, number)
  call("HSET", prefix .. "asks", node, exact(number) .. " " .. exact(steady))
end

-- Raises the version.  Returns what the lines that are written begin with, and the first of so many new fences.
local function begin_commit(fences)
  local fence = header.fence
  if fences > 0 then
    fence = fence > 0 and fence or leap(0)
    header.fence = fence + fences
  end
  header.version, header.last, is_changed = header.version + 1, wall, true
  local stamp = { exact(header.version), exact(fence + 1), exact(header.version * IDS), "" }
  return table.concat(stamp, " "), fence + 1
end
