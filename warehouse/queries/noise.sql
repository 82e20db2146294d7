-- How far the same code measured twice lies apart (incumbent ÷ twin): decisions overall, noise sessions by case.
SELECT * FROM noise
