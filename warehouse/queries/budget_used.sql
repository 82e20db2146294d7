-- Minutes on a device, by contract and kind of session.
SELECT * FROM budget_used
