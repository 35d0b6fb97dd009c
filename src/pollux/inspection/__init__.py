"""What a fitted clustering tells beside labels: which samples fit nowhere, how clusters group into larger ones."""
