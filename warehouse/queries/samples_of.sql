-- Every timed call of one plan, given as --param plan=NAME, as its number (v003) or as its plan hash.
SELECT *
FROM samples
WHERE plan = $plan OR starts_with(plan, $plan || '_') OR plan_hash = $plan
ORDER BY "session", "case", mode, generation, block, turn, call
