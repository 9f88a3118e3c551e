"""The files of a commit below .mqlog/txn: staged segments, the intent, the ledger."""
