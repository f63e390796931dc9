-- Reads pages of indexes, for searches and for pruning.  It changes nothing, and needs no header.

local CHUNK = 2000
local call, prefix
local reads = {}

local function exact(number)
  return string.format("%.17g", number)
end

-- For each key that exists: its line, text and history, unless they are `bare`; with `tails` its output.
local function rows_of(keys, tails, bare)
  local out = {}
  for from = 1, #keys, CHUNK do
    local to = math.min(from + CHUNK - 1, #keys)
    local lines = call("HMGET", prefix .. "states", unpack(keys, from, to))
    local texts = call("HMGET", prefix .. "texts", unpack(keys, from, to))
    local attempts = bare and {} or call("HMGET", prefix .. "attempts", unpack(keys, from, to))
    for place = 1, #lines do
      if lines[place] and texts[place] then
        out[#out + 1] = lines[place]
        out[#out + 1] = texts[place]
        out[#out + 1] = attempts[place] or false
        out[#out + 1] = tails and call("HGET", prefix .. "tails", keys[from + place - 1]) or false
      end
    end
  end
  return out
end

function reads.keys(r)
  return rows_of(r.keys, r.tails)
end

-- The records of all these indexes; nothing if there are more than `most`.
function reads.few(r)
  local keys, count = {}, 0
  for _, index in ipairs(r.indexes) do
    count = count + call("ZCARD", prefix .. index)
  end
  if count > r.most then
    return false
  end
  for _, index in ipairs(r.indexes) do
    for _, key in ipairs(call("ZRANGE", prefix .. index, 0, -1)) do
      keys[#keys + 1] = key
    end
  end
  return rows_of(keys)
end

-- The rank of the first key after this place, in the order of the search.
local function rank_after(index, place, is_upward)
  local at, key, command = exact(place[1]), place[2], is_upward and "ZRANGE" or "ZREVRANGE"
  local low = is_upward and call("ZCOUNT", index, "-inf", "(" .. at) or call("ZCOUNT", index, "(" .. at, "+inf")
  local high = low + call("ZCOUNT", index, at, at)
  while low < high do
    local middle = math.floor((low + high) / 2)
    local found = call(command, index, middle, middle)[1]
    if is_upward and found > key or not is_upward and found < key then
      high = middle
    else
      low = middle + 1
    end
  end
  return low
end

local function comes_first(is_upward)
  return function(one, other)
    if one[1] ~= other[1] then
      return (one[1] < other[1]) == is_upward
    end
    return one[2] ~= other[2] and (one[2] < other[2]) == is_upward
  end
end

-- The next places of all indexes together, at most `count`.
local function merged(r)
  local found, command = {}, r.is_upward and "ZRANGE" or "ZREVRANGE"
  for _, name in ipairs(r.indexes) do
    local index = prefix .. name
    local first = r.after and rank_after(index, r.after, r.is_upward) or 0
    if r["until"] then
      first = math.max(first, call("ZCOUNT", index, "(" .. exact(r["until"]), "+inf"))
    end
    local some = call(command, index, first, first + r.count - 1, "WITHSCORES")
    for place = 1, #some, 2 do
      local at = tonumber(some[place + 1])
      if not r.since or at >= r.since then
        found[#found + 1] = { at, some[place] }
      end
    end
  end
  table.sort(found, comes_first(r.is_upward or false))
  local places = {}
  for _, one in ipairs(found) do
    local last = places[#places]
    if #places == r.count then
      break
    elseif not last or last[2] ~= one[2] then
      places[#places + 1] = one
    end
  end
  return places
end

local function keys_of(places)
  local keys = {}
  for place, one in ipairs(places) do
    keys[place] = one[2]
  end
  return keys
end

-- Of these keys, those whose state and kind of outcome match.
local function matching(keys, states, kinds)
  local out = {}
  local wanted = {}
  for _, kind in ipairs(kinds) do
    wanted[kind] = true
  end
  for place, line in ipairs(#keys > 0 and call("HMGET", prefix .. "states", unpack(keys)) or {}) do
    local flags, kind = string.match(line or "", "^%S+ %S+ %S+ %S+ %S+ (%S+) (%S+)")
    if flags and (states == "" or string.sub(flags, 1, 1) == states) and (#kinds == 0 or wanted[kind]) then
      out[#out + 1] = keys[place]
    end
  end
  return out
end

-- A page of the search: how many places it has, the last of them, and the records that match.
function reads.page(r)
  local places = merged(r)
  local last = places[#places]
  local rows = rows_of(matching(keys_of(places), r.state, r.kinds))
  return { #places, last and exact(last[1]) or "", last and last[2] or "", rows }
end

-- The newest records of each job that are due, the latest first.
function reads.newest(r)
  local keys, now = {}, exact(r.now)
  for _, job in ipairs(r.jobs) do
    for _, key in ipairs(call("ZREVRANGEBYSCORE", prefix .. "book:" .. job, now, "-inf", "LIMIT", 0, r.each)) do
      keys[#keys + 1] = key
    end
  end
  return rows_of(keys, false, true)
end

-- For each of these minutes the groups of records that ended in it, and their numbers.
function reads.tally(r)
  local out = {}
  for minute = r.first, r.last do
    out[#out + 1] = call("HGETALL", prefix .. "tally:" .. exact(minute))
  end
  return out
end

-- The finished records that ended before an instant.
function reads.old(r)
  return rows_of(call("ZRANGEBYSCORE", prefix .. "over", "-inf", "(" .. exact(r.before), "LIMIT", r.passed, r.count))
end

-- Some jobs with more finished records than `keep`, and where the next call continues.
function reads.surplus(r)
  local page, jobs = call("SSCAN", prefix .. "past", r.cursor, "COUNT", 100), {}
  for _, job in ipairs(page[2]) do
    local surplus = call("ZCARD", prefix .. "done:" .. job) - r.keep
    if surplus > 0 then
      jobs[#jobs + 1], jobs[#jobs + 2] = job, surplus
    end
  end
  return { page[1], jobs }
end

function reads.oldest(r)
  return rows_of(call("ZRANGE", prefix .. "done:" .. r.job, r.passed, r.passed + r.count - 1))
end

-- For each queue how many messages are due, delayed, claimed and dead.
function reads.sizes(r)
  local out, now = {}, exact(r.now)
  for _, queue in ipairs(#r.queues > 0 and r.queues or call("SMEMBERS", prefix .. "queues")) do
    local plain, letters = prefix .. "due:p:" .. queue, prefix .. "letters:" .. queue
    local due = call("ZCOUNT", plain, "-inf", now) + call("ZCOUNT", letters, "-inf", now)
    local all = call("ZCARD", plain) + call("ZCARD", letters)
    local claimed, dead = call("ZCARD", prefix .. "taken:" .. queue), call("ZCARD", prefix .. "dead:" .. queue)
    out[#out + 1] = { queue, due, all - due, claimed, dead }
  end
  return out
end

local function answer()
  call, prefix = redis.call, string.sub(KEYS[1], 1, -6)
  local request = cjson.decode(ARGV[1])
  local time = call("TIME")
  request.now = tonumber(ARGV[2]) or time[1] + time[2] / 1000000
  return { exact(request.now), reads[request.read](request) }
end
