-- Everything that was recorded, in order and in words.
SELECT * FROM history
