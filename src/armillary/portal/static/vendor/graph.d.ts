// d3-force comes without types.
export const forceCenter: any, forceCollide: any, forceLink: any, forceManyBody: any, forceSimulation: any, forceX: any, forceY: any;
