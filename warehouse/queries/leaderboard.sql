-- Every plan that was decided on: the decision that gave it the title, else its last; screens decide nothing.
SELECT * FROM leaderboard
