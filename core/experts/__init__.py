"""Prediction with expert advice: which class comes next, where classes move.

The mixture remembers all that it was ever shown, and must: it answers how typical a sample is,
draws samples, and knows classes that have not come for long. Where labels say one thing today and
another tomorrow, or classes wander through the space, an answer that weighs all of the past alike
is behind. So the class of a sample is answered by experts, of which the mixture is one:

* *Gaussians* (`core.experts.gaussians`): one for each class, regularised (Friedman, Regularized
  Discriminant Analysis, 1989), whose sums fade.
* *Least squares* (`core.experts.least_squares`) on random cosine features (Rahimi and Recht,
  Random Features for Large-Scale Kernel Machines, 2007), whose sums fade likewise.
* *Forests* (`core.experts.forest`) of decision trees that grow sample by sample, for what single
  features decide, one after the other. Trees begin anew, and counts fade.

Each of these stands at several horizons, samples after which what it was told has faded to a third,
or is gone. All are weighed by how probable they called the labels that came, and a share of every
weight goes round, so that whoever becomes the best is heard soon (Herbster and Warmuth, Tracking
the Best Expert, 1998: fixed share). Forgetting is of the answer, not of the knowledge: the mixture
stays as it is, and an expert says nothing of classes that did not come within its horizon. What
those who forget nothing give these classes stays theirs.

No samples are kept but the last few that wait to be added up (`FEWEST_ROWS`), only sums and trees
of a bounded size. Samples that were declared as images have no experts: what counts among pixels is
memory, and no class wanders.
"""
