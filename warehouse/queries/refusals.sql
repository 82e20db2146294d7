-- Every verdict that failed, and why.
SELECT * FROM refusals
