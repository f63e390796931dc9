-- Settles reports, then answers an ask, which may get the places that the reports freed.

function verbs.finish_and_claim(asked)
  local _, answers = verbs.finish(asked)
  local soonest, told = verbs.claim(asked.ask)
  for place = 1, #told do
    answers[asked.count + place] = told[place]
  end
  return soonest, answers
end
