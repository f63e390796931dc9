-- Writes what a client decided, if nothing that it read has changed; else it writes nothing and says what has changed.
--
-- The request is a JSON object; its `shapes` are batches of records that change in the same way.  The keys, lines and
-- texts of a batch are columns of the arguments: a column starts at a place, or has one value for all its records.

local VIEW_S = 4 -- as in engine/driver.py
local IDS = 65536 -- ids that one version has

local request, version, stamp

local function holds(expect)
  local ask = expect.ask
  if expect.epoch ~= "" and expect.epoch ~= header.epoch then
    return false
  elseif expect.seen and math.abs(steady - expect.seen) > VIEW_S then
    return false
  elseif expect.ahead and math.abs(header.ahead - expect.ahead) > STEP_S then
    return false -- the clock was set since the look
  elseif (expect.generation or header.generation) ~= header.generation then
    return false
  elseif (expect.controls or header.controls) ~= header.controls then
    return false
  elseif ask then
    local last = tonumber(string.match(call("HGET", prefix .. "asks", ask[1]) or "0", "^%S+"))
    return steady >= header.calm and ask[2] > last
  end
  return true
end

local function is_at(text, version_word)
  return text and string.sub(text, 1, #version_word) == version_word
end

-- Adds the keys of the batch whose record is not the one that the client read, or exists although it is new.
local function check_batch(shape, stale, present)
  local is_dead = shape.live and shape.live <= steady
  each_part(shape.count, function(from, to)
    local keys, versions = shape.keys, shape.versions
    local lines = call("HMGET", prefix .. "states", unpack(ARGV, keys + from, keys + to))
    for place = 1, #lines do
      local line, key = lines[place], keys + from + place - 1
      if not versions then
        if line then
          present[#present + 1] = ARGV[key]
        end
      else
        local word = type(versions) == "string" and versions or ARGV[versions + from + place - 1]
        if is_dead or not is_at(line, word) then
          stale[#stale + 1] = "r" .. ARGV[key]
        end
      end
    end
  end)
end

-- Replies with what is stale, and with the keys of new records that exist.
local function check()
  local stale, present = {}, {}
  for _, shape in ipairs(request.shapes) do
    check_batch(shape, stale, present)
  end
  for hash, cells in pairs(request.cells) do
    cells.old = call("HMGET", prefix .. hash, unpack(cells.fields))
    for place, expected in ipairs(cells.versions) do
      local found = cells.old[place]
      if type(expected) == "number" and tonumber(found and string.match(found, "^%d+") or 0) ~= expected then
        stale[#stale + 1] = "c" .. hash .. " " .. cells.fields[place]
      end
    end
  end
  for _, job in ipairs(request.jobs) do
    local found = tonumber(string.match(call("HGET", prefix .. "jobs", job[1]) or "0", "^%d+"))
    if found ~= job[3] then
      stale[#stale + 1] = "j" .. job[1]
    end
  end
  return stale, present
end

-- Two columns as the arguments of a command.
local function pairs_of(from, to, first, second, start)
  local words = {}
  for place = from, to do
    words[#words + 1] = type(first) == "string" and first or ARGV[first + place]
    words[#words + 1] = start and start .. ARGV[second + place] or ARGV[second + place]
  end
  return unpack(words)
end

local function leave_index(kind, of, keys, from, to)
  if type(of) == "string" then
    call("ZREM", prefix .. kind .. of, unpack(ARGV, keys + from, keys + to))
    return
  end
  for place = from, to do
    call("ZREM", prefix .. kind .. ARGV[of + place], ARGV[keys + place])
  end
end

local function enter_index(kind, of, scores, keys, from, to)
  if type(of) == "string" then
    call("ZADD", prefix .. kind .. of, pairs_of(from, to, scores, keys))
    return
  end
  for place = from, to do
    local score = type(scores) == "string" and scores or ARGV[scores + place]
    call("ZADD", prefix .. kind .. ARGV[of + place], score, ARGV[keys + place])
  end
end

local function append(hash, key, text)
  local old = call("HGET", prefix .. hash, key)
  call("HSET", prefix .. hash, key, old and old .. "," .. text or text)
end

local function write_batch(shape)
  local keys = shape.keys
  each_part(shape.count, function(from, to)
    for _, index in ipairs(shape.leaves) do
      leave_index(index[1], index[2], keys, from, to)
    end
    if shape.is_gone then
      for _, hash in ipairs({ "states", "texts", "attempts", "tails" }) do
        call("HDEL", prefix .. hash, unpack(ARGV, keys + from, keys + to))
      end
    end
    if shape.lines then
      call("HSET", prefix .. "states", pairs_of(from, to, keys, shape.lines, stamp))
    end
    if shape.texts then
      call("HSET", prefix .. "texts", pairs_of(from, to, keys, shape.texts))
    end
    for _, index in ipairs(shape.enters) do
      enter_index(index[1], index[2], index[3], keys, from, to)
    end
    for hash, column in pairs(shape.firsts) do
      call("HSET", prefix .. hash, pairs_of(from, to, keys, column))
    end
    for hash, column in pairs(shape.appends) do
      for place = from, to do
        append(hash, ARGV[keys + place], ARGV[column + place])
      end
    end
  end)
end

-- Without a text only the version of a cell changes; the text `false` deletes it.
local function write_cells(hash, cells)
  local words, gone = {}, {}
  for place, text in ipairs(cells.texts) do
    if text == false then
      gone[#gone + 1] = cells.fields[place]
    else
      text = text ~= cjson.null and text or string.match(cells.old[place] or "", "^%d+ (.*)$") or ""
      words[#words + 1], words[#words + 2] = cells.fields[place], exact(version) .. " " .. text
    end
  end
  if #gone > 0 then
    call("HDEL", prefix .. hash, unpack(gone))
  end
  if #words > 0 then
    call("HSET", prefix .. hash, unpack(words))
  end
end

local function write_jobs()
  for _, job in ipairs(request.jobs) do
    if job[2] == "" then
      call("HDEL", prefix .. "jobs", job[1])
    else
      call("HSET", prefix .. "jobs", job[1], exact(version) .. " " .. job[2])
    end
  end
  for job, at in pairs(request.succeeded) do
    call("HSET", prefix .. "succeeded", job, at)
  end
  for job, at in pairs(request.reached) do
    local old = tonumber(call("HGET", prefix .. "reached", job))
    if not old or tonumber(at) > old then
      call("HSET", prefix .. "reached", job, at)
    end
  end
end

local function unpark(keys, at)
  for _, key in ipairs(keys) do
    local one = read_line(key)
    if one then
      reschedule(one, version, one.run_at, at)
    end
  end
  rings = rings or #keys > 0 and not at
end

-- lane, most, at; or "", job
local function wake(lane, most, at)
  if lane == "" then
    unpark(call("ZRANGE", prefix .. "stalled:" .. most, 0, -1))
    return
  end
  for _, queue in ipairs(call("SMEMBERS", prefix .. "parks:" .. lane)) do
    unpark(call("ZRANGE", prefix .. "parked:" .. lane .. "|" .. queue, 0, most - 1), at > 0 and at or nil)
  end
end

-- Shows again what was taken into hand.
local function release()
  for _, hand in ipairs(request.hand) do
    local index, keys, words = hand[1], hand[2], {}
    for place, line in ipairs(#keys > 0 and call("HMGET", prefix .. "states", unpack(keys)) or {}) do
      local look_at, state = string.match(line or "", "^%S+ %S+ %S+ %S+ (%S+) (.)")
      if state == "p" then
        words[#words + 1], words[#words + 2] = look_at, keys[place]
      end
    end
    if #words > 0 then
      call("ZADD", prefix .. index, "XX", unpack(words))
    end
  end
  if #request.lanes > 0 then
    call("HDEL", prefix .. "hands", unpack(request.lanes))
  end
end

local function write_all()
  for _, shape in ipairs(request.shapes) do
    write_batch(shape)
  end
  for hash, cells in pairs(request.cells) do
    write_cells(hash, cells)
  end
  write_jobs()
  for hash, numbers in pairs(request.tallies) do
    for group, number in pairs(numbers) do
      call("HINCRBY", prefix .. hash, group, number)
    end
    call("EXPIRE", prefix .. hash, request.tally_s)
  end
  for _, set in ipairs(request.sets) do
    call("SADD", prefix .. set[1], set[2])
  end
  for _, one in ipairs(request.wakes) do
    wake(unpack(one))
  end
  release()
end

local function answer()
  if not arrive() then
    return {}
  end
  request = cjson.decode(ARGV[REQUEST])
  local expect = request.expect
  if not holds(expect) then
    return { leave(), "refused" }
  end
  local stale, present = check()
  if #stale > 0 or #present > 0 then
    return { leave(), "stale", stale, present }
  end
  local fence = header.fence
  if request.fences > 0 then
    fence = fence > 0 and fence or leap(0)
    header.fence = fence + request.fences
  end
  version = header.version + 1
  stamp = exact(version) .. " " .. exact(fence + 1) .. " " .. exact(version * IDS) .. " "
  rings, is_changed = request.rings, true
  write_all()
  if expect.ask then
    call("HSET", prefix .. "asks", expect.ask[1], exact(expect.ask[2]) .. " " .. exact(steady))
  end
  header.version, header.last = version, wall
  header.longest = math.max(header.longest, request.longest)
  header.generation = header.generation + (request.new_generation and 1 or 0)
  header.controls = header.controls + (request.new_controls and 1 or 0)
  return { leave(), "done", exact(fence + 1) }
end
