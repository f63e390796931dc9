-- Writes what a client decided, if nothing that it read has changed; else it writes nothing and says what has changed.
--
-- The request is a JSON list: what must hold; the hashes whose versions are checked; the writes, for each command its
-- keys and their numbers of arguments; what to wake.  The other arguments are, for each of these hashes, fields and
-- then their versions, unless they have one in common; then the arguments of the writes.  What has a version begins
-- with three words: the version, and the first fence and the first id of its commit.

local VIEW_S = 4 -- as in engine/driver.py

local stamp

local function holds(expect)
  local ask = expect.ask
  return (not expect.epoch or expect.epoch == header.epoch)
    and (not expect.seen or math.abs(steady - expect.seen) <= VIEW_S)
    and (not expect.ahead or math.abs(header.ahead - expect.ahead) <= STEP_S) -- else the clock was set since the look
    and (not expect.live_until or expect.live_until > steady)
    and (expect.generation or header.generation) == header.generation
    and (expect.controls or header.controls) == header.controls
    and (not ask or steady >= header.quarantined_until and ask[2] > last_ask(ask[1]))
end

-- The fields that do not have the version that the client read, and the place after the versions.  Of nothing it is 0.
local function check(checks)
  local stale, at = {}, REQUEST
  for _, one in ipairs(checks) do
    local hash, count, common = unpack(one)
    for from = at + 1, at + count, CHUNK do
      local to = math.min(from + CHUNK - 1, at + count)
      for place, text in ipairs(call("HMGET", prefix .. hash, unpack(ARGV, from, to))) do
        local field = from + place - 1
        local expected = common or ARGV[field + count]
        if string.sub(text or "0 ", 1, #expected) ~= expected then
          stale[#stale + 1] = hash .. " " .. ARGV[field]
        end
      end
    end
    at = at + (common and count or 2 * count)
  end
  return stale, at
end

-- Writes that are no commands of Redis, for a hash and some of the arguments.
local writes = {}

function writes.STAMP(hash, from, to)
  local words = { unpack(ARGV, from, to) }
  for place = 2, #words, 2 do
    words[place] = stamp .. words[place]
  end
  call("HSET", hash, unpack(words))
end

-- Changes only the version.
function writes.RESTAMP(hash, from, to)
  for place = from, to do
    local text = string.match(call("HGET", hash, ARGV[place]) or "", "^%S+ %S+ %S+ (.*)$")
    call("HSET", hash, ARGV[place], stamp .. (text or ""))
  end
end

function writes.EXTEND(hash, from, to)
  for place = from, to, 2 do
    local old = call("HGET", hash, ARGV[place])
    call("HSET", hash, ARGV[place], (old and old .. "," or "") .. ARGV[place + 1])
  end
end

-- Adds numbers to fields.
function writes.COUNT(hash, from, to)
  for place = from, to, 2 do
    call("HINCRBY", hash, ARGV[place], ARGV[place + 1])
  end
end

local function write_all(list, at)
  for _, one in ipairs(list) do
    local command, flag = string.match(one[1], "^(%S+) ?(.*)$")
    local write = writes[command]
    for place = 2, #one, 2 do
      local key, first = prefix .. one[place], at + 1
      at = at + one[place + 1]
      for from = first, at, CHUNK do
        local to = math.min(from + CHUNK - 1, at)
        if write then
          write(key, from, to)
        elseif flag ~= "" then
          call(command, key, flag, unpack(ARGV, from, to))
        else
          call(command, key, unpack(ARGV, from, to))
        end
      end
    end
  end
end

local function unpark(keys, at)
  for _, key in ipairs(keys) do
    local line = read_line(key)
    if line then
      reschedule(key, line, 0, at)
    end
  end
  wakes_nodes = wakes_nodes or #keys > 0 and not at
end

-- lane, most, at; or "", job
local function wake(lane, most, at)
  if lane == "" then
    return unpark(call("ZRANGE", prefix .. "stalled:" .. most, 0, -1))
  end
  for _, queue in ipairs(call("SMEMBERS", prefix .. "parks:" .. lane)) do
    unpark(call("ZRANGE", prefix .. "parked:" .. lane .. "|" .. queue, 0, most - 1), at > 0 and at or nil)
  end
end

local function commit(expect, checks, list, wakes)
  if not holds(expect) then
    return { leave(), "refused" }
  end
  local stale, at = check(checks)
  if #stale > 0 then
    return { leave(), "stale", stale }
  end
  local fence
  stamp, fence = begin_commit(expect.fences)
  wakes_nodes = expect.wakes_nodes
  write_all(list, at)
  for _, one in ipairs(wakes) do
    wake(unpack(one))
  end
  if expect.ask then
    keep_ask(unpack(expect.ask))
  end
  header.longest = math.max(header.longest, expect.longest_ttl_s)
  header.generation = header.generation + (expect.new_generation and 1 or 0)
  header.controls = header.controls + (expect.new_controls and 1 or 0)
  return { leave(), "done", exact(fence) }
end

return arrive() and commit(unpack(cjson.decode(ARGV[REQUEST]))) or {}
