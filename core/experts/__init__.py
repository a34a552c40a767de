"""Prediction with expert advice: which class comes next, where classes move.

The mixture must remember all that it was ever shown: it answers how typical a sample is, draws
samples, and knows classes that have not come for long. Where labels change their meaning, or
classes wander through the space, an answer that weighs all of the past alike is late. So the class
of a sample is answered by experts, and the mixture is one of them:

* *Gaussians* (`core.experts.gaussians`): one for each class, regularised (Friedman, Regularized
  Discriminant Analysis, 1989), whose sums fade.
* *Least squares* (`core.experts.least_squares`) on random cosine features (Rahimi and Recht,
  Random Features for Large-Scale Kernel Machines, 2007), whose sums fade likewise.
* *Forests* (`core.experts.forest`) of decision trees that grow sample by sample, for what single
  features decide, one after the other. Trees begin anew, and counts fade.
* *Neighbours* (`core.experts.neighbours`): the nearest of micro-clusters, for fine patterns.

Of many features Gaussians alone learn, and of very many a sketch of them (`core.experts.sketch`).

Every kind of expert has several *horizons*: the number of samples after which what it learned has
faded to a third, or is gone. Experts are weighed by the probabilities that they gave to the labels
that came: half by which one is best just now, half by which of them are best together
(`core.experts.share`). The mixture stays as it is, and an expert leaves classes that did not come
within its horizon to those that forget nothing.

Experts keep sums and trees of a bounded size, and the last few samples that wait to be added up
(`FEWEST_ROWS`). Images have no experts: their classes do not wander.
"""
