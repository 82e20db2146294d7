-- Every plan that was decided on, with its last decision.
SELECT * FROM leaderboard
