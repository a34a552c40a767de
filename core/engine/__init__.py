"""Who acts on the state: judges a batch, decides, learns it or crosses a boundary."""
