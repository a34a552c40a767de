"""The engine acts on its state: it judges a batch, decides, learns it or crosses a boundary."""
