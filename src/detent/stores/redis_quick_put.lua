-- Messages whose keys are all new, and which nothing but room will keep waiting: most are such.  The rules are those
-- of `records.put_light`; a message is packed at once, without a table of its own.

local function is_quick(rules)
  for _, one in ipairs(rules) do
    if one.rare then
      return false
    end
  end
  return true
end

local function packed_of(rules, due, run_at)
  lengthen(rules.claim_s)
  return cmsgpack.pack(
    "pending", rules.queue, rules.job, due, run_at, 0, rules.claim_s, nil, nil, nil, nil, nil, nil, nil, nil, nil,
    nil, nil, rules.unique_s, nil
  )
end

-- Of all with the same rules: what goes into their indices.
local function list_of(lists, rules)
  local list = { rules = rules, ready = {}, book = {}, size = 0 }
  lists[rules] = list
  meet("mailboxes", rules.queue)
  meet("tasks", rules.job)
  return list
end

local function write_quickly(packs, some_texts, lists)
  call_with("HSET", KEPT, packs)
  call_with("HSET", name("texts"), some_texts)
  for rules, list in pairs(lists) do
    call_with("ZADD", messages.box(rules.queue).ready, list.ready)
    call_with("ZADD", messages.shelf(rules.job).book, list.book)
  end
  save_names()
end

-- Put them all; nil, and nothing is done: some need the rules in full.
local function put_quickly(keys, found, asked, run_at)
  if not is_quick(asked.rules) then
    return nil
  end
  local put, packs, some_texts, lists, starts = {}, {}, {}, {}, exact(run_at)
  local last_rules, last_due, packed, list
  for place = 1, #keys do
    local at, key = FIRST_TEXT + 4 * (place - 1), keys[place]
    local rules, due = asked.rules[tonumber(ARGV[at + 2])], ARGV[at + 1]
    if not rules or found[place] or put[key] then
      return nil
    end
    put[key] = true
    if rules ~= last_rules or due ~= last_due then
      last_rules, last_due, packed = rules, due, packed_of(rules, tonumber(due), run_at)
      list = lists[rules] or list_of(lists, rules)
    end
    at = 2 * place
    packs[at - 1], packs[at], some_texts[at - 1], some_texts[at] = key, packed, key, ARGV[FIRST_TEXT + 4 * place - 1]
    at, list.size = list.size, list.size + 2
    list.ready[at + 1], list.ready[at + 2], list.book[at + 1], list.book[at + 2] = starts, key, due, key
  end
  if run_at > wall then
    look_again()
  end
  write_quickly(packs, some_texts, lists)
  return true
end
