"""The objective span corruption: its loss, its batches and its scores."""
