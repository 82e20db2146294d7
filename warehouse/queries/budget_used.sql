-- Minutes on a device, by contract, scope and kind of session.
SELECT * FROM budget_used
