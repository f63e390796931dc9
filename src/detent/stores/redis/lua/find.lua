-- Reads for searches and for pruning, and deletes empty names.  It works on a full server.

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

-- The number of places that were looked at; the last of them, or "" if no more follow; the rows that match, at most `most`.
function reads.page(r)
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
  return { looked, is_end and "" or exact(places[looked][1]), keys[looked] or "", records_of(matching, 3) }
end

-- Deletes the members of the set of which no key with such a start exists.
function reads.trim(set, starts)
  for _, member in ipairs(call("SMEMBERS", prefix .. set)) do
    local keys = {}
    for place, start in ipairs(starts) do
      keys[place] = prefix .. start .. member
    end
    if call("EXISTS", unpack(keys)) == 0 then
      call("SREM", prefix .. set, member)
    end
  end
end

arrive() -- without `leave`, which writes
return answer(cjson.decode(ARGV[REQUEST]), { exact(wall), exact(steady) })
