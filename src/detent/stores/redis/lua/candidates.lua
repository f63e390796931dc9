-- Reads the due fires of a queue in order.  Merges its indexes, in chunks that grow, from where the last ask stopped.

local CHUNK_MIN, CHUNK_MAX = 2, 128
local LOOK_EVERY_S = 0.1 -- at many

-- Has the queue at this place any fires, or messages?
local function has_fires(round, place)
  return round.has_fires[place] == 1
end

local function has_messages(round, place)
  return round.has_messages[place] == 1
end

local function before(one, other)
  return one.run_at < other.run_at or one.run_at == other.run_at and one.key < other.key
end

-- The next fire of an index, in order; nil: no more is due.  They are read in chunks that grow.
local function peek(source)
  if source.place > #source.chunk then
    if source.size == 0 then
      return nil
    end
    local keys = redis.call("ZRANGE", source.index, source.next, source.next + source.size - 1)
    source.chunk, source.place = #keys > 0 and fires.fetch(keys, source.hash) or keys, 1
    source.next = source.next + #keys
    source.rank = source.next - #source.chunk
    source.size = #keys < source.size and 0 or math.min(source.size * 2, CHUNK_MAX) -- 0: there are no more
  end
  local fire = source.chunk[source.place]
  return fire and fire.run_at <= wall and fire or nil
end

local function leap_to(source, rank)
  if rank > source.rank then
    source.chunk, source.place, source.next, source.rank = {}, 1, rank, rank
  end
end

-- The first of what the candidates have next; it is taken from its source.
local function first_of(candidates)
  local first, from
  for place = 1, #candidates do
    local one = peek(candidates[place])
    if one and (not first or before(one, first)) then
      first, from = one, candidates[place]
    end
  end
  if from then
    from.place, from.rank = from.place + 1, from.rank + 1
  end
  return first
end

-- Asks that had to stop early left the ranks where the next goes on: to run more, and to look at others.
local function read_scans(round)
  local flat = redis.call("HGETALL", name("scans"))
  for place = 1, #flat, 2 do
    round.scans[flat[place]] = tonumber(flat[place + 1])
  end
end

local function scan_of(what, source)
  return what .. " " .. source.kind .. " " .. source.queue
end

local function add_source(candidates, round, kind, queue, hash)
  local left = math.min(round.left.runs, CHUNK_MAX)
  local source = {
    kind = kind, queue = queue, index = name(kind, queue), hash = hash, is_plain = kind == "plain" or kind == "ready",
    chunk = {}, place = 1, next = 0, rank = 0, run = 0, look = 0,
    size = math.max(left, kind == "ready" and 1 or CHUNK_MIN),
  }
  source.run, source.look = round.scans[scan_of("run", source)] or 0, round.scans[scan_of("look", source)] or 0
  leap_to(source, source.run)
  candidates[#candidates + 1] = source
end

local function candidates_of(round, place)
  local candidates, queue = {}, round.ask.queues[place]
  if has_fires(round, place) then
    add_source(candidates, round, "pending", queue, "states")
    add_source(candidates, round, "plain", queue, "states")
  end
  if has_messages(round, place) then
    add_source(candidates, round, "waiting", queue, "messages")
    add_source(candidates, round, "ready", queue, "messages")
  end
  return candidates
end

local function remember(candidates, kind, is_cut)
  for _, source in ipairs(candidates) do
    if is_cut then
      redis.call("HSET", name("scans"), scan_of(kind, source), source.rank)
    elseif source[kind] > 0 then
      redis.call("HDEL", name("scans"), scan_of(kind, source))
    end
  end
end

-- From now on only sentences are wanted of this queue.  Answers what is left to look at.
local function switch_to_sentences(candidates, round, queue)
  local rest = {}
  remember(candidates, "run", false)
  for _, source in ipairs(candidates) do
    if not source.is_plain then
      rest[#rest + 1] = source
    end
  end
  local looked = round.scans["looked " .. queue]
  if looked and math.abs(mono - looked) < LOOK_EVERY_S then
    round.is_cut = true
    return {}
  end
  for _, source in ipairs(rest) do
    leap_to(source, source.look)
  end
  return rest
end
