-- The best plan of every case: its µs beside the reference and the best peer, how far from the floor, and from which sessions.
SELECT * FROM champions
