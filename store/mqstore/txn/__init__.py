"""What a commit keeps below .mqlog/txn: staged segments, the intent, the ledger."""
