-- The start of every script: the time, the epoch, and whether the clock was set since the last call.
--
-- KEYS[1] is the app's header ("world").  All keys of the app have the same prefix, and so are in one slot.  ARGV: the
-- verb, its argument as JSON, six words of what the client knows, then words that are passed on.
--
-- `wall` is the server's clock and decides what is due.  `mono` decides what has expired: it is the wall clock minus
-- all steps that were noticed.  A client sends the last `mono` that it got, and how long ago that was by a clock that
-- is never set: at least so much time has passed.  A larger or smaller difference of the wall clock is a step.  A
-- client without such a reading cannot tell a step from a time without calls.  Then each claim gets a new ttl, once,
-- so that no running work is granted again.

-- The parts of a script are read once where the server keeps them as a function, and at each call where it does
-- not (`redis_script.py`).  So nothing here may outlive a call: whatever changes is set anew by `each_call`.

local SCHEMA = 2
local FIRST_TEXT = 9
local ORPHANS_TTL_S = 30 -- of claims of which even that was forgotten
local STEP_S = 0.5 -- less is the network, or drift; rules/trust.py
local SINCE_2020_S, FENCE_STEP = 1577836800, 4194304 -- 2^22
local NAMES_MAX = 2000 -- that are kept
local TOUCH_S = 0.25 -- that the store was called is written down no more often than this

local verbs = {} -- of the parts that this script is made of
local beginnings, prefix, places = {}, nil, nil
local said, found = {}, {} -- what the client knows, and `header` as this call found it
local header, wall, mono, wakes_nodes
local exacts, wholes = {}, {} -- the small whole ones are the same in the next call
local names, named, is_elsewhere = {}, 0, nil -- of keys: those of one app are used again by the next call

-- What a part has to set anew before each call.
local function each_call(begin)
  beginnings[#beginnings + 1] = begin
  if prefix then -- it is set up in the middle of one
    begin()
  end
end

-- A table for the next call: a new one only where the last has left something in it.
local function emptied(used)
  return next(used) == nil and used or {}
end

each_call(function()
  is_elsewhere = places ~= KEYS[1] or named > NAMES_MAX
  if is_elsewhere then
    places, prefix, names, named = KEYS[1], string.sub(KEYS[1], 1, -6), {}, 0
  end
  said.waits, said.wall, said.epoch = ARGV[3] ~= "", tonumber(ARGV[4]), ARGV[5] ~= "" and ARGV[5] or nil
  wall, mono, exacts, wakes_nodes = 0, 0, emptied(exacts), false
end)

-- cjson would round a number, and so would an answer; an argument of a command is exact as it is.  The same few come
-- again and again.
local function exact(number)
  local text = exacts[number] or wholes[number]
  if not text then
    text = string.format("%.17g", number)
    local texts = number % 1 == 0 and number < NAMES_MAX and wholes or exacts
    texts[number] = text
  end
  return text
end

local function is_success(outcome)
  return string.sub(outcome, 1, 9) == "succeeded"
end

-- Is a message that ended so a dead letter?
local DEAD = { failed = true, rejected = true, ["timed-out"] = true, lost = true, missed = true }
local function is_dead(outcome)
  return DEAD[string.match(outcome, "^%S+")] or false
end

local function name(kind, of)
  local some = names[kind]
  if not some then
    some = {}
    names[kind] = some
  end
  local key = some[of or 0]
  if not key then
    key = of and prefix .. kind .. ":" .. of or prefix .. kind
    some[of or 0] = key
    named = named + 1
  end
  return key
end

-- The text of a note, as it is kept; false: there is none.
local function note_of(packed)
  local note = packed and cmsgpack.unpack(packed)
  return note and (not note.expires or note.expires > mono) and note.text
end

-- Wake those who wait, when the call is over.
local function wake_nodes()
  wakes_nodes = true
end

-- What `quick_claim` has found out of some queues: it does not hold any more, or not after this reading of `mono`.
local function look_again()
  header.recorded = header.recorded + 1
end

local function look_before(expires)
  header.bare_comes, header.bare_until = math.min(header.bare_comes, expires), math.min(header.bare_until, expires)
end

-- What `header` holds: numbers, which nearly every call changes, and as a map the rest.  Where the text is the one that
-- the last call left, as far as this process of the server knows, it is not read again.
local HEAD, FORM, REST_AT = "\217\80", "<dddddddddd", 83 -- to msgpack the numbers are a text of 80 bytes
local NUMBERS = {
  last = true, ahead = true, quarantined_until = true, fence = true, longest = true, generation = true, recorded = true,
  bare_at = true, bare_comes = true, bare_until = true,
}
local kept, kept_rest

local function unpack_world(packed, known_rest)
  if string.sub(packed, 1, #HEAD) ~= HEAD then
    error("DETENT-SCHEMA 1")
  end
  local rest = string.sub(packed, REST_AT)
  if rest ~= known_rest then
    header = cmsgpack.unpack(rest)
  end
  header.last, header.ahead, header.quarantined_until, header.fence, header.longest, header.generation, header.recorded,
    header.bare_at, header.bare_comes, header.bare_until = struct.unpack(FORM, packed, #HEAD + 1)
  return rest
end

local function pack_rest()
  local rest = {}
  for field, value in pairs(header) do
    rest[field] = not NUMBERS[field] and value or nil
  end
  return cmsgpack.pack(rest)
end

local function read_world()
  local packed, rest = redis.call("GET", name("world")), kept_rest
  if not packed then
    header = {}
  elseif packed ~= kept then
    rest = unpack_world(packed, kept_rest)
  end
  kept, kept_rest = nil, nil -- until this call is over
  found.packed, found.rest, found.epoch, found.bare_of = packed, rest, header.era, header.bare_of
  found.last, found.ahead, found.quarantined_until = header.last, header.ahead, header.quarantined_until
  found.fence, found.longest, found.generation = header.fence, header.longest, header.generation
  found.recorded, found.bare_comes, found.bare_until = header.recorded, header.bare_comes, header.bare_until
end

local function save_world()
  local moved = header.last - (found.last or 0)
  local is_named = header.era ~= found.epoch or header.bare_of ~= found.bare_of
  local is_told = said.waits or moved < 0 or moved > TOUCH_S or is_named
  local is_timed = header.ahead ~= found.ahead or header.quarantined_until ~= found.quarantined_until
  local is_grown = header.fence ~= found.fence or header.longest ~= found.longest
  local is_more = header.generation ~= found.generation or header.recorded ~= found.recorded
  local is_looked = header.bare_comes ~= found.bare_comes or header.bare_until ~= found.bare_until
  if is_told or is_timed or is_grown or is_more or is_looked then
    kept_rest = is_named and pack_rest() or found.rest
    kept = HEAD .. struct.pack(
      FORM, header.last, header.ahead, header.quarantined_until, header.fence, header.longest, header.generation, header.recorded,
      header.bare_at, header.bare_comes, header.bare_until
    ) .. kept_rest
    redis.call("SET", name("world"), kept)
  else
    header.last, kept, kept_rest = found.last, found.packed, found.rest
  end
end

-- A claim of so long was, or could have been, granted.
local function lengthen(ttl_s)
  header.longest = math.max(header.longest, ttl_s)
end

local function leap(fence)
  return math.max(fence + FENCE_STEP, math.floor(wall - SINCE_2020_S) * FENCE_STEP)
end

-- The one that was granted last.
local function last_fence()
  return header.fence > 0 and header.fence or leap(0)
end

local function begin_epoch(replid)
  header.replid, header.began = replid, mono
  header.era = string.sub(replid, 1, 12) .. "-" .. string.format("%.0f", wall * 1000000)
end

local function begin_world(replid)
  header.schema, header.ahead, header.quarantined_until, header.fence, header.longest = SCHEMA, 0, 0, 0, 0
  header.generation, header.recorded, header.bare_at, header.bare_comes, header.bare_until = 0, 0, 0, 0, 0
  mono = wall
  begin_epoch(replid)
end

-- What the store remembers may be old: fences leap, and no claim is granted too soon.
local function new_epoch(replid)
  begin_epoch(replid)
  header.fence = header.fence > 0 and leap(header.fence) or 0
  header.quarantined_until = mono + (header.fence > 0 and header.longest or math.max(header.longest, ORPHANS_TTL_S))
end

-- How far the clock was set since the last call, and whether it moved in a way that nobody can explain.
local function step_of(moved)
  if said.epoch ~= header.era then
    return math.min(moved, 0), moved > STEP_S
  end
  local known = math.max(0, ARGV[6] + ARGV[8] - (header.last - header.ahead))
  if moved < 0 or math.abs(moved - known) > STEP_S then
    return moved - known, false
  end
  return 0, false
end

local function read_clock()
  local time = redis.call("TIME")
  local text = time[1] .. "." .. string.sub("00000" .. time[2], -6)
  wall = said.wall or tonumber(text)
  exacts[wall] = not said.wall and text or nil
end

local function replid_now()
  local info = redis.call("INFO", "replication")
  local at = header.replid and string.find(info, header.replid, 1, true)
  if at and string.sub(info, at - 14, at - 1) == "master_replid:" then
    return header.replid
  end
  return string.match(info, "master_replid:(%x+)") or "none"
end

-- Answers how far the clock was set, how far it moved where that may have been a step, and how far `mono` went
-- ahead of it.
local function arrive()
  read_clock()
  read_world()
  local replid = replid_now()
  local step, moved, is_doubtful = 0, 0, false
  if header.era then
    if header.schema > SCHEMA then
      error("DETENT-SCHEMA " .. header.schema)
    end
    moved = wall - header.last
    step, is_doubtful = step_of(moved)
    header.ahead = header.ahead + step
    mono = wall - header.ahead
    if header.replid ~= replid then
      new_epoch(replid)
    end
  else
    begin_world(replid)
  end
  -- A client that knew an older epoch may still trust a claim that this one has forgotten.
  if said.epoch and said.epoch ~= header.era then
    local longest = tonumber(ARGV[7])
    lengthen(longest)
    header.quarantined_until = math.max(header.quarantined_until, header.began + (longest > 0 and longest or ORPHANS_TTL_S))
  end
  header.last = wall
  local leapt = moved >= 0 and math.max(-step, 0) or 0 -- a clock that was set back by far has not moved ahead
  return math.abs(step) > STEP_S and step or 0, is_doubtful and moved or 0, leapt
end

-- Four words about the store, the answer as JSON, then words that go out as they are.
local function reply(answer, words)
  save_world()
  if wakes_nodes then
    redis.call("XADD", name("bell"), "MAXLEN", "~", 1, "*", "rang", 1)
  end
  local told = { exact(wall), exact(mono), header.era, exact(header.longest), cjson.encode(answer) }
  for place = 1, #words do
    told[5 + place] = words[place]
  end
  return told
end
