-- Reads for searches and for pruning, and deletes empty names.  It needs no header, and works on a full server.

local ROW = { "states", "texts", "attempts", "tails" }
local reads = {}

-- calls, commands.  Replies with their replies.
function reads.calls(r)
  return replies_to(r[2])
end

-- rows, keys, how many hashes.  Replies with the rows of the records; those of a whole row include the output.
function reads.rows(r)
  return records_of(r[2], { unpack(ROW, 1, r[3]) })
end

-- found, commands that reply with keys, how many hashes
function reads.found(r)
  return reads.rows({ "", keys_of(r[2]), r[3] })
end

-- The rank of the first key after this place, in the order of the search.
local function rank_after(index, place, is_upward)
  local at, key, command = exact(place[1]), place[2], is_upward and "ZRANGE" or "ZREVRANGE"
  local low = is_upward and call("ZCOUNT", index, "-inf", "(" .. at) or call("ZCOUNT", index, "(" .. at, "+inf")
  local high = low + call("ZCOUNT", index, at, at)
  while low < high do
    local middle = math.floor((low + high) / 2)
    local found = call(command, index, middle, middle)[1]
    if found ~= key and (found > key) == is_upward then
      high = middle
    else
      low = middle + 1
    end
  end
  return low
end

-- The next places of all indexes together, in order.  A key may be in several indexes.
local function merged(r)
  local found, seen, command = {}, {}, r.is_upward and "ZRANGE" or "ZREVRANGE"
  for _, name in ipairs(r.indexes) do
    local index = prefix .. name
    local first = r.after and rank_after(index, r.after, r.is_upward) or 0
    if r["until"] then
      first = math.max(first, call("ZCOUNT", index, "(" .. exact(r["until"]), "+inf"))
    end
    local some = call(command, index, first, first + r.count - 1, "WITHSCORES")
    for place = 1, #some, 2 do
      local key, at = some[place], tonumber(some[place + 1])
      if seen[key] ~= at and (not r.since or at >= r.since) then
        found[#found + 1], seen[key] = { at, key }, at
      end
    end
  end
  table.sort(found, function(one, other)
    local by = one[1] ~= other[1] and 1 or 2
    return one[by] ~= other[by] and (one[by] < other[by]) == r.is_upward
  end)
  return found
end

-- page, request.  Replies with the number of places that were looked at; the last of them, or "" if no more follow; and
-- the records that match, at most `most`.
function reads.page(r)
  r = r[2]
  local keys, kinds, matching, looked = {}, {}, {}, 0
  local places = merged(r)
  for place = 1, math.min(#places, r.count) do
    keys[place] = places[place][2]
  end
  for _, kind in ipairs(r.kinds) do
    kinds[kind] = true
  end
  for place, line in ipairs(#keys > 0 and call("HMGET", prefix .. "states", unpack(keys)) or {}) do
    local state, kind = string.match(line or "", "^%S+ %S+ %S+ (%S+) (%S*)")
    if state and (r.state == "" or state == r.state) and (#r.kinds == 0 or kinds[kind]) then
      matching[#matching + 1] = keys[place]
    end
    looked = place
    if #matching == r.most then
      break
    end
  end
  local is_end = looked == #keys and #keys < r.count
  return { looked, is_end and "" or exact(places[looked][1]), keys[looked] or "", reads.rows({ "", matching, 3 }) }
end

-- trim, set, starts of names.  Deletes the members of the set of which no key with such a name exists.
function reads.trim(r)
  for _, member in ipairs(call("SMEMBERS", prefix .. r[2])) do
    local keys = {}
    for place, start in ipairs(r[3]) do
      keys[place] = prefix .. start .. member
    end
    if call("EXISTS", unpack(keys)) == 0 then
      call("SREM", prefix .. r[2], member)
    end
  end
end

read_clock()
read_header()
steady = wall - (header and header.ahead or 0)
local replies = { exact(wall), exact(steady) }
for _, read in ipairs(cjson.decode(ARGV[REQUEST])) do
  replies[#replies + 1] = reads[read[1]](read) or false
end
return replies
