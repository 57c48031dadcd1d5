# Variances from π alone, for tests/extra/r/test_variances.py and tests/unit/designs/test_approximate_variance.py:
#
#     Rscript tests/extra/r/golden_variances.R > tests/extra/r/golden_variances.json
#
# Deville's second is `varest` of R's package `sampling`. The package has no function for the others; there the
# sum of squares is R's own, of a regression on a constant: Σ c (z − B)² with z = y/π is the deviance of lm(z ~ 1)
# with weights c, where B is their mean by c (Deville's first, which is also Hájek's), or the squared residuals
# of lm(z ~ 1) without weights, summed by c (Deville's third).
suppressPackageStartupMessages(library(sampling))
set.seed(1)

numbers <- function(x) paste0("[", paste(sprintf("%.15g", x), collapse = ", "), "]")

entries <- sapply(c(2, 3, 5, 12, 40), function(k) {
  n <- 3 * k
  pik <- inclusionprobabilities(rgamma(n, 2) + 0.1, k)
  y <- round(50 * pik + rnorm(n, sd = 5), 3)
  drawn <- UPsystematic(pik) == 1
  p <- pik[drawn]
  z <- y[drawn] / p
  first <- (1 - p) * k / (k - 1)
  second <- varest(y[drawn], pik = p)
  share <- (1 - p) / sum(1 - p)
  third <- (1 - p) / (1 - sum(share^2))
  paste0(
    '  {"probs": ', numbers(pik),
    ',\n   "y": ', numbers(y),
    ',\n   "drawn": ', numbers(as.integer(drawn)),
    ',\n   "deville1": ', sprintf("%.15g", deviance(lm(z ~ 1, weights = first))),
    ',\n   "deville2": ', sprintf("%.15g", second),
    ',\n   "deville3": ', sprintf("%.15g", sum(third * residuals(lm(z ~ 1))^2)), "}"
  )
})

cat("[\n", paste(entries, collapse = ",\n"), "\n]\n", sep = "")
