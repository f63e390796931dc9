-- Merges the fires of several indexes into one order: the latest due first, or the next one first.
--
-- A source reads one index from a place on.  A place is an instant and a key, because thousands may be due at one
-- instant.

local CHUNK_FOUND = 16 -- read of an index at a time

local function is_later(one, other)
  return one.due > other.due or one.due == other.due and one.key > other.key
end

local function is_sooner(one, other)
  return one.due < other.due or one.due == other.due and one.key < other.key
end

-- The fires of several sources in this order: a function that gives the next one.  The sources are a heap, by
-- what each has next: an app may have hundreds of tasks, each with a book of its own.
local function merged(sources, is_before)
  local heap, size = {}, 0
  local function sink(place)
    while true do
      local first = place
      for child = 2 * place, math.min(2 * place + 1, size) do
        if is_before(heap[child].head, heap[first].head) then
          first = child
        end
      end
      if first == place then
        return
      end
      heap[place], heap[first], place = heap[first], heap[place], first
    end
  end
  for _, source in ipairs(sources) do
    source.head = source.peek()
    if source.head then
      size = size + 1
      heap[size] = source
    end
  end
  for place = math.floor(size / 2), 1, -1 do
    sink(place)
  end
  return function()
    local top = heap[1]
    if not top then
      return nil
    end
    local found = top.head
    top.skip()
    top.head = top.peek()
    if not top.head then
      heap[1] = heap[size]
      heap[size] = nil
      size = size - 1
    end
    sink(1)
    return found
  end
end

-- How many of an index come before this place or at it.
local function rank_after(index, place, range, is_before)
  local due = exact(place.due)
  local function count(edge)
    local from, to = "-inf", edge
    if is_before == is_later then
      from, to = edge, "+inf"
    end
    return redis.call("ZCOUNT", index, from, to)
  end
  local first, last = count("(" .. due), count(due)
  while first < last do
    local middle = math.floor((first + last) / 2)
    local key = redis.call(range, index, middle, middle)[1]
    if is_before(place, { due = place.due, key = key }) then
      last = middle
    else
      first = middle + 1
    end
  end
  return first
end

local function source_of(index, rank, range, is_over)
  local chunk, place, source = {}, 1, {}
  function source.peek()
    while place > #chunk do
      chunk, place = redis.call(range, index, rank, rank + CHUNK_FOUND - 1, "WITHSCORES"), 1
      rank = rank + #chunk / 2
      if #chunk == 0 then
        return nil
      end
    end
    local due = tonumber(chunk[place + 1])
    return not is_over(due) and { due = due, key = chunk[place] } or nil
  end
  function source.skip()
    place = place + 2
  end
  return source
end

-- By their nominal instant, the latest first.
local function latest_of(index, query)
  local rank = 0
  if query.before then
    rank = rank_after(index, query.before, "ZREVRANGE", is_later)
  elseif query["until"] then
    rank = redis.call("ZCOUNT", index, "(" .. exact(query["until"]), "+inf")
  end
  return source_of(index, rank, "ZREVRANGE", function(due)
    return query.since and due < query.since
  end)
end

-- By when they are due (again), the next first.
local function next_of(index, query)
  local rank = query.before and rank_after(index, query.before, "ZRANGE", is_sooner) or 0
  return source_of(index, rank, "ZRANGE", function()
    return false
  end)
end
