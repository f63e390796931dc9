-- The end of every script: runs the verb that the call names, and returns its reply.

local function find(asked) -- it changes nothing, and needs no clock
  local answer, words = verbs.find(asked)
  table.insert(words, 1, cjson.encode(answer))
  return words
end

local function move_along(step, moved, leapt)
  local steps = the_steps()
  if step == 0 then
    steps.doubt(moved)
  else
    steps.move_waits(step)
    if leapt > 0 then
      steps.prolong(leapt)
    end
  end
  fires.save()
end

local function answer()
  for place = 1, #beginnings do
    beginnings[place]()
  end
  local asked = cjson.decode(ARGV[2])
  if ARGV[1] == "find" then
    return find(asked)
  end
  local step, moved, leapt = arrive()
  if step ~= 0 or moved > 0 then
    move_along(step, moved, leapt)
  end
  local told, words = verbs[ARGV[1]](asked)
  fires.save()
  return reply(told, words or {})
end
