"""What a fitted clustering tells beside labels: which samples fit nowhere."""
