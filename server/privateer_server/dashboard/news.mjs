// What a stream of news makes of a list. Pure: no page is needed.

/** The list after news: those that are there keep their places. */
export function merged(experiments, news) {
  if (news === null) return experiments;
  if (news.whole) return news.experiments;
  const changed = new Map(news.experiments.map((one) => [one.name, one]));
  const kept = experiments.filter(({ name }) => !news.deleted.includes(name)).map((one) => changed.get(one.name) ?? one);
  const names = new Set(experiments.map(({ name }) => name));
  return [...kept, ...news.experiments.filter(({ name }) => !names.has(name))];
}
