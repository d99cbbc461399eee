"""Observations that are images: Montezuma's Revenge, Freeway, and DeepSea as a picture."""
