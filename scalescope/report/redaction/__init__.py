"""Reports for others: names of hosts and users and absolute paths give way to pseudonyms."""
