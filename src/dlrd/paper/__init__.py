"""The paper, reproduced: "Dynamic Learning Rate Decay for Stochastic Variational Inference".

| of the paper | here |
|---|---|
| section 2, Algorithm 1: the rule | `dlrd.rates.dynamic_decay`, `dlrd.regression` |
| section 2, equations for the ELBO's gradients | `dlrd.gradients` |
| Jeffreys divergence, the measure of accuracy | `dlrd.divergence` |
| section 3.1, the synthetic joint density; appendix B, its optimum | `problems.synthetic` |
| section 3.2, logistic regression | `problems.logistic`; its reference in `references.logistic` |
| section 3.3, the diffusivity field | `problems.field`, `problems.finite_elements`; `references.field` |
| captions of figures 1 to 8: optimisers, rates, draws, steps | `experiments.spec` |
| the optimisers' formulas | `experiments.batch.DIRECTIONS` |
| figures 1 to 8 | `figures` |
| what the text says about the figures | `claims` |

`dlrd reproduce` is `reproduce`: runs (`experiments`), figures, claims, and the page (`page`).
"""
