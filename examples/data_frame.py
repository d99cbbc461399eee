"""A data frame with text, a date and missing cells: predictions as pandas objects, and why a row is doubtful."""

import numpy as np
import pandas as pd

from priorax import PriorEnsembleRegressor

rng = np.random.default_rng(0)
n = 200
houses = pd.DataFrame(
    {
        "size": np.where(rng.random(n) < 0.05, np.nan, rng.normal(100, 30, n)),
        "city": rng.choice(["Rome", "Oslo"], n),
        "sold": pd.Timestamp("2020-01-01") + pd.to_timedelta(rng.integers(0, 1000, n), unit="D"),
    }
)
price = pd.Series(2 * houses["size"].fillna(100) + 50 * (houses["city"] == "Oslo") + rng.normal(0, 5, n), name="price")

model = PriorEnsembleRegressor(encode=True, num_members=10, steps=1000, random_state=0).fit(houses, price)
model.set_output(transform="pandas")

new = houses.head(2).copy()
new.loc[1, "size"] = 400.0  # four times what is usual
print(pd.DataFrame(model.predict_uncertainty(new)._asdict()))
print(model.explain(new)[1])
assert model.explain(new)[1].causes[0].column == "size"
